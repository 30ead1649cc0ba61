// Stands for what merges the parts of an item that a cluster shares, where there are clusters.
#pragma once
#include "kg/attn/clusters.h"
#include "kg/attn/join.h"
#if defined(KG_CLUSTER)
#include "kg/attn/cluster_nvidia.h"
#else
#include "kg/attn/no_cluster.h"
#endif
