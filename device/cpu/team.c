/* Lanes of workgroups as fibers. A lane runs until it has to wait for its wave, for
 * the group, at a gate or for the cluster; where lanes wait at different places, the launch fails
 * and the message names both. */
#include "team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fiber.h"

enum {
    EXCHANGE_BYTES = 256, /* a lane */
    ALIGNMENT = 256,
    WAVES_MAX = KGEN__CPU_BLOCK_MAX / 32,
    POISON = 0xff, /* NaN in every float format */
    LARGE = 0x47,  /* or a number in each, as what ran before leaves: 51e3 in bf16 and f32 */
    COPIES = 64,   /* of a lane on their way, at most */
    ERRANDS = 128, /* of a workgroup */
};

typedef enum lane_stop {
    STOP_NONE,
    STOP_BARRIER,
    STOP_CLUSTER,
    STOP_GATE,
    STOP_SYNC,
    STOPS
} lane_stop;
/* What a wave waits for is where its lanes stopped. */
typedef enum wave_state { WAVE_DONE, WAVE_READY, WAVE_WAITS, WAVE_DIVERGED } wave_state;

typedef struct wave wave;
typedef struct workgroup workgroup;

/* On its way to LDS: of a lane's group of them. */
typedef struct copy {
    void *to;
    const void *from;
    unsigned bytes, group;
} copy;

typedef struct lane {
    kg_cpu_lane record; /* first: what the kernel sees */
    struct lane *next;  /* live lanes of the wave, in the order they run */
    wave *of;
    lane_stop stop; /* where it waits */
    const uint64_t *gate;
    unsigned parity;     /* that the gate has while it waits */
    uint64_t draws;      /* the same of all lanes of a wave */
    copy copies[COPIES]; /* a ring: from `first` on, of groups up to `group` */
    unsigned group, first, count;
    kgen__fiber fiber;
} lane;

/* In one round every live lane runs once, to its next stop; each lane hands
 * over to the next by itself, the last one decides what follows. */
struct wave {
    workgroup *of;
    lane *head;
    lane **link; /* what points to the running lane */
    unsigned live;
    unsigned at[STOPS]; /* lanes that wait there */
    wave_state state;
    lane_stop stop; /* WAVE_WAITS: of all its lanes */
    unsigned slow;  /* below LINGERS */
    unsigned char *exchange;
    unsigned char *stacks;
    unsigned lane_count;
    lane lanes[];
};

/* For the memory engine. */
typedef struct errand {
    void (*run)(const void *what);
    unsigned char what[KG_CPU_ERRAND];
} errand;

struct workgroup {
    kgen__team *of;
    unsigned char *lds;
    uint64_t named[KG_CPU_NAMED]; /* barriers of some of the waves */
    errand errands[ERRANDS];
    unsigned errand_count;
    unsigned wave_count;
    wave *waves[WAVES_MAX];
};

struct kgen__team {
    const kgen_target *persona;
    const kgen__cpu_work *work;
    uint64_t draws;
    int late; /* copies come when they are waited for, errands wait */
    kgen__fiber scheduler;
    workgroup groups[KGEN__CPU_CLUSTER_MAX]; /* lds NULL: not needed so far */
};

/* Who could go on does not always do so at once, and some waves seldom do, or a wave that has said
 * something would be as far as it gets before others hear it. So many times of LINGERS. */
enum { LINGERS = 8 };
static unsigned draw(uint64_t *draws) {
    *draws = *draws * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*draws >> 32);
}
static int lingers(uint64_t *draws, unsigned times) { return draw(draws) % LINGERS < times; }

/* Set by whoever switches to a lane. A lane stays on its thread while a
 * workgroup runs. */
static __thread lane *current __attribute__((tls_model("initial-exec")));

static lane *end_round(wave *w) {
    if (w->live && w->at[STOP_SYNC] == w->live) {
        w->at[STOP_SYNC] = 0;
        w->link = &w->head;
        return w->head;
    }
    w->state = w->live ? WAVE_DIVERGED : WAVE_DONE;
    for (lane_stop stop = STOP_BARRIER; stop < STOP_SYNC; stop++)
        if (w->live && w->at[stop] == w->live) w->state = WAVE_WAITS, w->stop = stop;
    return NULL;
}

/* Not inlined: a lane may come back from its last switch in another thread, so
 * no caller may keep the address of `current` over this. */
static __attribute__((noinline)) void hand_over(lane *self, lane *next) {
    if (next == self) return;
    current = next;
    kgen__fiber_switch(&self->fiber, next ? &next->fiber : &self->of->of->of->scheduler);
}

static void wait_at(lane_stop stop) {
    lane *self = current;
    self->stop = stop;
    self->of->at[stop]++;
    self->of->link = &self->next;
    hand_over(self, self->next ? self->next : end_round(self->of));
}

static void leave(lane *self) {
    wave *w = self->of;
    *w->link = self->next;
    w->live--;
    hand_over(self, self->next ? self->next : end_round(w));
}

/* The fiber stays; it runs a lane of another workgroup, perhaps in another
 * thread, when it is switched to again. */
static void lane_main(void *arg) {
    lane *self = arg;
    for (;;) {
        const kgen__cpu_work *work = self->of->of->of->work;
        work->body(work->params);
        leave(self);
    }
}

static kg_cpu_lane *op_self(void) { return &current->record; }

static void op_wave_sync(void) { wait_at(STOP_SYNC); }
static void op_barrier(void) { wait_at(STOP_BARRIER); }
static void op_cluster_barrier(void) { wait_at(STOP_CLUSTER); }
static int is_open(const uint64_t *gate, unsigned parity) {
    return (*gate >> KG_CPU_GATE_PHASE & 1) != parity;
}
static void op_await(const uint64_t *gate, unsigned parity) {
    if (is_open(gate, parity) && !lingers(&current->draws, LINGERS / 2)) return;
    current->gate = gate;
    current->parity = parity;
    wait_at(STOP_GATE);
}
static void copy_comes(lane *l) {
    const copy *c = &l->copies[l->first++ % COPIES];
    l->count--;
    memcpy(c->to, c->from, c->bytes);
}
static void op_copy(void *to, const void *from, unsigned bytes) {
    lane *l = current;
    if (l->count == COPIES) copy_comes(l);
    l->copies[(l->first + l->count++) % COPIES] = (copy){to, from, bytes, l->group};
    if (!l->of->of->of->late) copy_comes(l);
}
static void op_copies_end(void) { current->group++; }
static void op_copies_done(unsigned groups) {
    lane *l = current;
    while (l->count && l->copies[l->first % COPIES].group + groups < l->group) copy_comes(l);
}
static void op_all_copies_done(void) {
    lane *l = current;
    while (l->count) copy_comes(l);
}
/* One of them; they have no order. */
static void run_errand(workgroup *group) {
    errand *one = &group->errands[draw(&group->of->draws) % group->errand_count];
    errand its = *one;
    *one = group->errands[--group->errand_count];
    its.run(its.what);
}
static void op_later(void (*run)(const void *), const void *what, unsigned bytes) {
    workgroup *group = current->of->of;
    if (group->errand_count == ERRANDS) run_errand(group);
    errand *its = &group->errands[group->errand_count++];
    its->run = run;
    memcpy(its->what, what, bytes);
    if (!group->of->late) run_errand(group);
}
static unsigned char *op_peer_lds(unsigned rank) { return current->of->of->of->groups[rank].lds; }

const kg_cpu_ops kgen__team_ops = {
    op_self, op_wave_sync,  op_barrier,     op_cluster_barrier, op_peer_lds, op_await,
    op_copy, op_copies_end, op_copies_done, op_all_copies_done, op_later};

static void wave_free(wave *w) {
    if (w->stacks) kgen__stacks_unmap(w->stacks, w->lane_count);
    free(w->exchange);
    free(w);
}

/* Exact size, so that AddressSanitizer sees the byte after the end. */
static unsigned char *poisoned(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, ALIGNMENT, bytes) != 0) return NULL;
    return memset(memory, POISON, bytes);
}

/* Stack tops at one page offset would all compete for the same few cache
 * sets: lanes start some lines apart. */
static size_t colour(unsigned lane_index) { return (size_t)(lane_index * 5 % 32) * 64; }

static wave *wave_create(workgroup *group, unsigned index) {
    unsigned lanes = (unsigned)group->of->persona->wave_size;
    wave *w = calloc(1, sizeof *w + lanes * sizeof w->lanes[0]);
    if (!w) return NULL;
    size_t stride = 0;
    w->of = group;
    w->lane_count = lanes;
    w->exchange = poisoned((size_t)lanes * EXCHANGE_BYTES);
    w->stacks = kgen__stacks_map(lanes, &stride);
    if (!w->exchange || !w->stacks) {
        wave_free(w);
        return NULL;
    }
    for (unsigned i = 0; i < lanes; i++) {
        lane *l = &w->lanes[i];
        l->of = w;
        l->record.thread = index * lanes + i;
        l->record.lane = i;
        l->record.wave = index;
        l->record.lds = group->lds;
        l->record.exchange = w->exchange;
        l->record.named = group->named;
        kgen__fiber_init(&l->fiber, w->stacks + stride * i, kgen__stack_bytes() - colour(i),
                         lane_main, l);
    }
    return w;
}

void kgen__team_free(kgen__team *team) {
    if (!team) return;
    for (workgroup *g = team->groups; g < team->groups + KGEN__CPU_CLUSTER_MAX; g++) {
        for (unsigned i = 0; i < g->wave_count; i++) wave_free(g->waves[i]);
        free(g->lds);
    }
    free(team);
}

/* That a launch can give. */
static size_t lds_of(const kgen_target *persona) {
    return (size_t)(persona->unit_lds_bytes - persona->group_lds_bytes);
}

static kgen_status no_memory(kgen_error *err, const char *what) {
    return kgen_fail(err, KGEN_E_NOMEM, "cpu device: no memory for %s", what);
}

kgen_status kgen__team_create(kgen__team **out, const kgen_target *persona, kgen_error *err) {
    kgen__team *team = calloc(1, sizeof *team);
    if (!team) return no_memory(err, "a workgroup");
    team->persona = persona;
    for (int n = 0; n < KGEN__CPU_CLUSTER_MAX; n++) team->groups[n].of = team;
    *out = team;
    return KGEN_OK;
}

static kgen_status grow(workgroup *group, unsigned waves, kgen_error *err) {
    if (!group->lds) group->lds = poisoned(lds_of(group->of->persona));
    if (!group->lds) return no_memory(err, "LDS");
    while (group->wave_count < waves) {
        wave *w = wave_create(group, group->wave_count);
        if (!w) return no_memory(err, "the stacks of a wave");
        group->waves[group->wave_count++] = w;
    }
    return KGEN_OK;
}

/* Lanes run upwards or downwards: a missing wave_sync shows in one of them. */
static void enlist(wave *w, unsigned lanes, unsigned group, uint64_t chance) {
    const kgen__cpu_work *work = w->of->of->work;
    lane **tail = &w->head;
    uint64_t draws = chance + w->lanes[0].record.wave;
    w->slow = 0;
    while (w->slow + 1 < LINGERS && lingers(&draws, LINGERS - 2)) w->slow++;
    for (unsigned i = 0; i < lanes; i++) {
        lane *l = &w->lanes[chance & 1 ? lanes - 1 - i : i];
        l->record.group = group;
        l->record.groups = work->groups;
        l->record.block = work->block;
        l->stop = STOP_NONE;
        l->draws = draws;
        l->group = l->first = l->count = 0;
        *tail = l;
        tail = &l->next;
    }
    *tail = NULL;
    w->live = lanes;
    w->state = WAVE_READY;
}

static void run_round(wave *w) {
    memset(w->at, 0, sizeof w->at);
    w->link = &w->head;
    current = w->head;
    kgen__fiber_switch(&w->of->of->scheduler, &w->head->fiber);
}

/* --- who waits where -------------------------------------------------------- */

static const char *const stop_names[STOPS] = {
    [STOP_BARRIER] = "the barrier",
    [STOP_CLUSTER] = "the cluster's barrier",
    [STOP_GATE] = "a gate",
    [STOP_SYNC] = "wave_sync",
};

static const lane *waiting(const wave *w, lane_stop stop) {
    const lane *l = w->head;
    while (l && l->stop != stop) l = l->next;
    return l;
}

/* A lane at one place, and one at another. */
static kgen_status lanes_diverged(const wave *w, kgen_error *err) {
    lane_stop stops[2] = {STOP_NONE, STOP_NONE};
    int found = 0;
    for (lane_stop stop = STOP_BARRIER; stop < STOPS && found < 2; stop++)
        if (waiting(w, stop)) stops[found++] = stop;
    const kg_cpu_lane *at = &w->head->record;
    return kgen_fail(err, KGEN_E_DEVICE,
                     "workgroup %u, wave %u: lane %u waits at %s (%u of %u live lanes) while lane "
                     "%u waits at %s (%u lanes)",
                     at->group, at->wave, waiting(w, stops[0])->record.lane, stop_names[stops[0]],
                     w->at[stops[0]], w->live, waiting(w, stops[1])->record.lane,
                     stop_names[stops[1]], w->at[stops[1]]);
}

/* A gate by its place in LDS, or its number. */
static const char *place_of(char out[64], const wave *w) {
    const unsigned char *gate = (const unsigned char *)w->head->gate, *lds = w->of->lds;
    if (w->stop != STOP_GATE)
        snprintf(out, 64, "%s", stop_names[w->stop]);
    else if (gate >= lds && gate < lds + lds_of(w->of->of->persona))
        snprintf(out, 64, "%s (byte %zu of LDS)", stop_names[STOP_GATE], (size_t)(gate - lds));
    else
        snprintf(out, 64, "barrier %td", w->head->gate - w->of->named);
    return out;
}

static kgen_status waves_diverged(const wave *a, const wave *b, kgen_error *err) {
    char places[2][64];
    return kgen_fail(err, KGEN_E_DEVICE,
                     "workgroup %u: wave %u waits at %s while wave %u waits at %s",
                     a->head->record.group, a->head->record.wave, place_of(places[0], a),
                     b->head->record.wave, place_of(places[1], b));
}

/* --- a cluster --------------------------------------------------------------- */

static int can_go(const wave *w) {
    if (w->state != WAVE_WAITS || w->stop != STOP_GATE) return w->state == WAVE_READY;
    return is_open(w->head->gate, w->head->parity);
}

/* Each wave that can goes on to where it waits next, beginning with number `first`; errands are run
 * now and then, and when nobody can. */
static kgen_status pass(workgroup *group, unsigned waves, unsigned first, int *went,
                        kgen_error *err) {
    *went = 0;
    for (unsigned i = 0; i < waves; i++) {
        wave *w = group->waves[(first + i) % waves];
        if (!can_go(w)) continue;
        *went = 1;
        if (lingers(&group->of->draws, w->slow)) continue;
        run_round(w);
        if (w->state == WAVE_DIVERGED) return lanes_diverged(w, err);
        if (group->errand_count && lingers(&group->of->draws, 1)) run_errand(group);
    }
    if (*went || !group->errand_count) return KGEN_OK;
    *went = 1;
    run_errand(group);
    return KGEN_OK;
}

/* Where all that have not left wait: STOP_NONE where they have, an error at different places. */
static kgen_status common_stop(const workgroup *group, unsigned waves, lane_stop *stop,
                               kgen_error *err) {
    const wave *one = NULL;
    *stop = STOP_NONE;
    for (unsigned i = 0; i < waves; i++) {
        const wave *w = group->waves[i];
        if (w->state == WAVE_DONE) continue;
        if (one && (w->stop != one->stop || w->stop == STOP_GATE))
            return w->stop < one->stop ? waves_diverged(w, one, err) : waves_diverged(one, w, err);
        one = w;
        *stop = w->stop;
    }
    return *stop == STOP_GATE ? waves_diverged(one, one, err) : KGEN_OK;
}

/* Who met goes on. */
static unsigned let_go(workgroup *group, unsigned waves, lane_stop stop) {
    unsigned count = 0;
    for (unsigned i = 0; i < waves; i++) {
        wave *w = group->waves[i];
        if (w->state != WAVE_WAITS || w->stop != stop) continue;
        w->state = WAVE_READY;
        count++;
    }
    return count;
}

/* Until all wait for the cluster, or have left. */
static kgen_status run_group(workgroup *group, unsigned waves, unsigned *start, kgen_error *err) {
    lane_stop stop = STOP_BARRIER;
    do {
        for (int went = 1; went; *start += waves - 1)
            KGEN_TRY(pass(group, waves, *start, &went, err));
        KGEN_TRY(common_stop(group, waves, &stop, err));
        if (stop == STOP_BARRIER) let_go(group, waves, stop);
    } while (stop == STOP_BARRIER);
    return KGEN_OK;
}

static kgen_status begin(kgen__team *team, unsigned waves, unsigned first, uint64_t chance,
                         kgen_error *err) {
    unsigned size = (unsigned)team->persona->wave_size;
    for (unsigned n = 0; n < team->work->cluster; n++) {
        workgroup *group = &team->groups[n];
        KGEN_TRY(grow(group, waves, err));
        memset(group->lds, chance >> 9 & 1 ? POISON : LARGE, lds_of(team->persona));
        memset(group->named, 0, sizeof group->named);
        group->errand_count = 0;
        for (unsigned i = 0; i < waves; i++) {
            unsigned left = team->work->block - i * size;
            enlist(group->waves[i], left < size ? left : size, first + n, chance);
        }
    }
    return KGEN_OK;
}

kgen_status kgen__team_run(kgen__team *team, const kgen__cpu_work *work, unsigned first,
                           uint64_t chance, kgen_error *err) {
    unsigned size = (unsigned)team->persona->wave_size;
    unsigned waves = (work->block + size - 1) / size, live;
    team->work = work;
    team->draws = chance;
    team->late = chance >> 8 & 1;
    KGEN_TRY(begin(team, waves, first, chance, err));
    unsigned start = (unsigned)((chance >> 1) % waves);
    do { /* from one meeting of the cluster to the next */
        for (unsigned n = 0; n < work->cluster; n++)
            KGEN_TRY(run_group(&team->groups[n], waves, &start, err));
        live = 0;
        for (unsigned n = 0; n < work->cluster; n++)
            live += let_go(&team->groups[n], waves, STOP_CLUSTER);
    } while (live);
    return KGEN_OK;
}
