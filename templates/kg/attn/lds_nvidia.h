// LDS: filled past the registers, and read as matrix operands. On the cpu device lds_cpu.h
// stands for this file.
#pragma once
#include "kg/core/machine.h"

namespace kg {

KG_DEV u32 lds_address(const u8 *p) { return (u32)__cvta_generic_to_shared(p); }

KG_DEV void copy_16(u8 *lds, const u8 *p) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
                 :
                 : "r"(lds_address(lds)), "l"(p)
                 : "memory");
}
// Ends a group of this lane's copies; all groups but the last N are in LDS.
KG_DEV void copies_end() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int N> KG_DEV void copies_done() {
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

// Four matrices of 8 rows of 16 bytes. Lane 8 m + r has the address of row r of matrix
// m; word m of lane 4 i + grp is bytes 4 grp .. 4 grp + 3 of its row i.
KG_DEV void load_matrices(u32 (&w)[4], const u8 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(lds_address(row))
                 : "memory");
}
// Turned: word m of lane 4 i + grp is bytes 2 i and 2 i + 1 of rows 2 grp and 2 grp + 1.
KG_DEV void load_turned(u32 (&w)[4], const u8 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(lds_address(row))
                 : "memory");
}

} // namespace kg
