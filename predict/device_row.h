/* What is known of the device that an architecture is predicted for. */
#ifndef KGEN_PREDICT_DEVICE_ROW_H
#define KGEN_PREDICT_DEVICE_ROW_H

#include "predict.h"

/* One device of an architecture, that of target->typical_cus; peak 0: no model. */
typedef struct kgen__device_row {
    const char *target;
    double peak, achievable; /* bytes per us: of the memory, of a read-mostly stream */
    double in_flight;        /* bytes a CU has to have under way to reach it */
    double read_us;          /* one read of memory, nothing else going on */
    double launch_us;        /* from one kernel of a graph to the next */
    double loaded_mhz;       /* while memory is busy: power is short then */
    double top_mhz;
    const char *basis; /* which of these were measured */
} kgen__device_row;

kgen_status kgen__device_find(const kgen__device_row **out, const kgen_target *target,
                              kgen_error *err);

/* Bytes per us of all compute units, each of which has `in_flight` bytes under way. */
double kgen__device_bandwidth(const kgen__device_row *device, double in_flight);

#endif
