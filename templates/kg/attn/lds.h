// Stands for the file of the target, like kg/core/machine.h.
#pragma once
#include "kg/attn/lds_nvidia.h"
