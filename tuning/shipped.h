/* The files of tuning/, embedded as bytes by cmake/embed.cmake. */
#ifndef KGEN_TUNING_SHIPPED_H
#define KGEN_TUNING_SHIPPED_H

#include "gen/templates.h"

extern const kgen__template kgen__shipped[]; /* in name order */
extern const size_t kgen__shipped_count;

#endif
