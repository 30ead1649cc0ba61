/* The start of a workspace, as kgen_workspace_init leaves it: every byte is the
 * same number, another one where the layout is another. Plain C. */
#pragma once

enum { KG_WORKSPACE_BYTE = 0x4b };

struct kg_workspace {
    unsigned broken; /* cleared by a launch that finds the workspace unfit */
    unsigned owner;  /* ticket of the launch that came last */
    unsigned unused[62];
    unsigned long long arrived[1 << 18]; /* a counter for each work item */
};
