/* A division by what a launch says. Plain C: the launchers include it as well. */
#pragma once

/* n / d = n * magic >> shift, for n below 2^31. */
struct kg_divisor {
    unsigned magic, shift;
};
