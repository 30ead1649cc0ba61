// Parts of an item with many rows, merged by all workgroups that have nothing else to do. Who has
// arrived waits a little for the others; when all have, each takes pieces of the rows one after the
// other until none is left. Nobody waits for long, so nobody has to be there: who arrives last
// takes what others do not. An item's counter has three numbers below the tickets: who arrived,
// what was taken, and who left. Who leaves last puts it back.
#pragma once
#include "kg/attn/parts.h"

namespace kg {

constexpr u32 MOST_TOGETHER = 1000;
constexpr u32 FEWEST_PARTS = PAIRED ? 2 : FEWEST_TOGETHER; // a part of 64 rows is merged for long
KG_DEV bool merge_together(u32 parts) {
    return MERGE_TOGETHER && parts >= FEWEST_PARTS && parts <= MOST_TOGETHER;
}

struct tally_t {
    u32 arrived, taken, left;
    bool amiss; // somebody else counts here
};
constexpr u32 TAKEN_BIT = 10, LEFT_BIT = 21;
static_assert(MOST_TOGETHER < 1u << TAKEN_BIT &&
                  PIECES + MOST_TOGETHER < 1u << (LEFT_BIT - TAKEN_BIT) &&
                  MOST_TOGETHER < 1u << (32 - LEFT_BIT),
              "room for each number");

KG_DEV tally_t tally_of(u64 count, u32 ticket) {
    u64 seen = count - COUNTER_AT_REST<u64>;
    u32 low = (u32)seen;
    tally_t t = {low % (1u << TAKEN_BIT), low % (1u << LEFT_BIT) >> TAKEN_BIT, low >> LEFT_BIT,
                 false};
    t.amiss = (u32)(seen >> 32) != ticket * (t.arrived + t.taken + t.left);
    return t;
}
// After one of them is counted.
KG_DEV tally_t count(u64 *counter, u32 ticket, u32 which) {
    u64 one = (u64)ticket << 32 | which;
    return tally_of(atomic_add(counter, one) + one, ticket);
}

// What is taken at once, as there are so many to take.
struct takings_t {
    u32 each, all;
};
KG_DEV takings_t takings_for(u32 parts) {
    u32 each = divide(PIECES + parts - 1, parts);
    return takings_t{each, divide(PIECES + each - 1, each)};
}
// Who finds nothing to take leaves.
KG_DEV void leave(u64 *counter, const tally_t &t, u32 parts, u32 pieces) {
    u32 left = t.left + (t.taken > pieces ? t.taken - pieces : 0);
    if (t.arrived == parts && left == parts && !t.amiss) store(counter, COUNTER_AT_REST<u64>);
}

// Thread 0.
KG_DEV arrival_t arrive_and_wait(args_t a, u64 *counter, u32 parts, bool waits) {
    u32 owner = atomic_load(&a.workspace->owner);
    tally_t t = count(counter, a.ticket, 1);
    if (owner != a.ticket || t.amiss || t.arrived > parts) return ARRIVED_AMISS;
    KG_LOOP for (int n = 0; waits && n < POLLS && t.arrived < parts && !t.amiss; n++) t =
        tally_of(atomic_load(counter), a.ticket);
    if (t.arrived < parts || t.amiss) return ARRIVED;
    return t.left + 1 == parts ? ARRIVED_LAST : ARRIVED_WITH_OTHERS;
}

constexpr u32 NOTHING = ~0u; // is to be trusted
KG_DEV arrival_t take_pieces(args_t a, const segment_t &g, cut_t cut, share_t share, u64 *counter,
                             u8 *lds, int wave) {
    u32 *taken = (u32 *)(lds + LDS_FLAG), parts = parts_of(share);
    takings_t takings = takings_for(parts);
    acquire_device();
    for (;;) {
        barrier();
        if (late_thread() == 0) {
            tally_t t = count(counter, a.ticket, 1u << TAKEN_BIT);
            *taken = t.amiss ? NOTHING : t.taken - 1;
            if (t.taken > takings.all) leave(counter, t, parts, takings.all);
        }
        barrier();
        u32 n = *taken;
        if (n >= takings.all) return n == NOTHING ? ARRIVED_AMISS : ARRIVED;
        u32 end = smaller((n + 1) * takings.each, PIECES);
        KG_LOOP for (n *= takings.each; n < end; n++) merge_piece(a, g, cut, share, n, wave, lds);
    }
}

// The workgroup has no further work: it has the last part of its own, or the line goes on behind.
KG_DEV bool has_time(cut_t cut, const segment_t &g, share_t share) {
    u32 part = part_of(cut);
    return share.last > part || cut_start(cut, part + 1) <= g.item_end;
}
// ARRIVED: the rows are merged, or are others' to merge; else by this workgroup alone.
KG_DEV arrival_t settle_together(args_t a, const segment_t &g, cut_t cut, share_t share,
                                 u64 *counter, u8 *lds, int wave) {
    int *flag = (int *)(lds + LDS_FLAG);
    u32 parts = parts_of(share);
    release_device();
    barrier();
    if (late_thread() == 0) *flag = arrive_and_wait(a, counter, parts, has_time(cut, g, share));
    barrier();
    arrival_t how = (arrival_t)*flag;
    if (how == ARRIVED && late_thread() == 0)
        leave(counter, count(counter, a.ticket, 1u << LEFT_BIT), parts, takings_for(parts).all);
    return how == ARRIVED_WITH_OTHERS ? take_pieces(a, g, cut, share, counter, lds, wave) : how;
}

} // namespace kg
