/* Lanes of a workgroup as fibers. A lane runs until it has to wait for its wave
 * or for the group; where lanes wait at different places, the launch fails and
 * the message names both. */
#include "team.h"

#include <stdlib.h>
#include <string.h>

#include "fiber.h"

enum {
    EXCHANGE_BYTES = 256, /* a lane */
    ALIGNMENT = 256,
    WAVES_MAX = KGEN__CPU_BLOCK_MAX / 32,
    POISON = 0xff, /* NaN in every float format */
};

typedef enum lane_stop { STOP_NONE, STOP_SYNC, STOP_BARRIER } lane_stop;
typedef enum wave_state { WAVE_DONE, WAVE_READY, WAVE_DIVERGED } wave_state;

typedef struct wave wave;

typedef struct lane {
    kg_cpu_lane record; /* first: what the kernel sees */
    struct lane *next;  /* live lanes of the wave, in the order they run */
    wave *of;
    lane_stop stop; /* where it waits */
    kgen__fiber fiber;
} lane;

/* In one round every live lane runs once, to its next stop; each lane hands
 * over to the next by itself, the last one decides what follows. */
struct wave {
    kgen__team *team;
    lane *head;
    lane **link; /* what points to the running lane */
    unsigned live, at_sync, at_barrier;
    wave_state state;
    unsigned char *exchange;
    unsigned char *stacks;
    unsigned lane_count;
    lane lanes[];
};

struct kgen__team {
    const kgen_target *persona;
    const kgen__cpu_work *work;
    unsigned char *lds;
    kgen__fiber scheduler;
    unsigned wave_count;
    wave *waves[WAVES_MAX];
};

/* Set by whoever switches to a lane. A lane stays on its thread while a
 * workgroup runs. */
static __thread lane *current __attribute__((tls_model("initial-exec")));

static lane *end_round(wave *w) {
    if (w->live && w->at_sync == w->live) {
        w->at_sync = 0;
        w->link = &w->head;
        return w->head;
    }
    int agreed = w->at_barrier == w->live;
    w->state = !w->live ? WAVE_DONE : agreed ? WAVE_READY : WAVE_DIVERGED;
    return NULL;
}

/* Not inlined: a lane may come back from its last switch in another thread, so
 * no caller may keep the address of `current` over this. */
static __attribute__((noinline)) void hand_over(lane *self, lane *next) {
    if (next == self) return;
    current = next;
    kgen__fiber_switch(&self->fiber, next ? &next->fiber : &self->of->team->scheduler);
}

static void wait_at(lane *self, lane_stop stop) {
    self->stop = stop;
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
        const kgen__cpu_work *work = self->of->team->work;
        work->body(work->params);
        leave(self);
    }
}

static kg_cpu_lane *op_self(void) { return &current->record; }

static void op_wave_sync(void) {
    lane *self = current;
    self->of->at_sync++;
    wait_at(self, STOP_SYNC);
}

static void op_barrier(void) {
    lane *self = current;
    self->of->at_barrier++;
    wait_at(self, STOP_BARRIER);
}

const kg_cpu_ops kgen__team_ops = {op_self, op_wave_sync, op_barrier};

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

static wave *wave_create(kgen__team *team, unsigned index) {
    unsigned lanes = (unsigned)team->persona->wave_size;
    wave *w = calloc(1, sizeof *w + lanes * sizeof w->lanes[0]);
    if (!w) return NULL;
    size_t stride = 0;
    w->team = team;
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
        l->record.lds = team->lds;
        l->record.exchange = w->exchange;
        kgen__fiber_init(&l->fiber, w->stacks + stride * i, kgen__stack_bytes() - colour(i),
                         lane_main, l);
    }
    return w;
}

void kgen__team_free(kgen__team *team) {
    if (!team) return;
    for (unsigned i = 0; i < team->wave_count; i++) wave_free(team->waves[i]);
    free(team->lds);
    free(team);
}

static kgen_status no_memory(kgen_error *err, const char *what) {
    return kgen_fail(err, KGEN_E_NOMEM, "cpu device: no memory for %s", what);
}

/* That a launch can give. */
static size_t lds_of(const kgen_target *persona) {
    return (size_t)(persona->unit_lds_bytes - persona->group_lds_bytes);
}

kgen_status kgen__team_create(kgen__team **out, const kgen_target *persona, kgen_error *err) {
    kgen__team *team = calloc(1, sizeof *team);
    if (!team) return no_memory(err, "a workgroup");
    team->persona = persona;
    team->lds = poisoned(lds_of(persona));
    if (!team->lds) {
        free(team);
        return no_memory(err, "LDS");
    }
    *out = team;
    return KGEN_OK;
}

static kgen_status grow(kgen__team *team, unsigned waves, kgen_error *err) {
    while (team->wave_count < waves) {
        wave *w = wave_create(team, team->wave_count);
        if (!w) return no_memory(err, "the stacks of a wave");
        team->waves[team->wave_count++] = w;
    }
    return KGEN_OK;
}

/* Lanes run upwards or downwards: a missing wave_sync shows in one of them. */
static void enlist(wave *w, unsigned lanes, unsigned group, int downwards) {
    const kgen__cpu_work *work = w->team->work;
    lane **tail = &w->head;
    for (unsigned i = 0; i < lanes; i++) {
        lane *l = &w->lanes[downwards ? lanes - 1 - i : i];
        l->record.group = group;
        l->record.groups = work->groups;
        l->record.block = work->block;
        l->stop = STOP_NONE;
        *tail = l;
        tail = &l->next;
    }
    *tail = NULL;
    w->live = lanes;
    w->state = WAVE_READY;
}

static void run_round(wave *w) {
    w->at_sync = w->at_barrier = 0;
    w->link = &w->head;
    current = w->head;
    kgen__fiber_switch(&w->team->scheduler, &w->head->fiber);
}

static const lane *waiting(const wave *w, lane_stop stop) {
    const lane *l = w->head;
    while (l && l->stop != stop) l = l->next;
    return l;
}

static kgen_status diverged(const wave *w, kgen_error *err) {
    const lane *barrier = waiting(w, STOP_BARRIER), *sync = waiting(w, STOP_SYNC);
    const kg_cpu_lane *at = &w->head->record;
    return kgen_fail(err, KGEN_E_DEVICE,
                     "workgroup %u, wave %u: lane %u waits at the barrier (%u of %u live lanes) "
                     "while lane %u waits at wave_sync (%u lanes)",
                     at->group, at->wave, barrier ? barrier->record.lane : 0, w->at_barrier,
                     w->live, sync ? sync->record.lane : 0, w->at_sync);
}

kgen_status kgen__team_run(kgen__team *team, const kgen__cpu_work *work, unsigned group,
                           uint64_t chance, kgen_error *err) {
    unsigned size = (unsigned)team->persona->wave_size;
    unsigned waves = (work->block + size - 1) / size, live = waves;
    KGEN_TRY(grow(team, waves, err));
    memset(team->lds, POISON, lds_of(team->persona));
    team->work = work;
    for (unsigned i = 0; i < waves; i++) {
        unsigned left = work->block - i * size;
        enlist(team->waves[i], left < size ? left : size, group, chance & 1);
    }
    /* Every pass takes each live wave from one barrier to the next. */
    for (unsigned first = (unsigned)((chance >> 1) % waves); live; first += waves - 1) {
        for (unsigned i = 0; i < waves; i++) {
            wave *w = team->waves[(first + i) % waves];
            if (w->state == WAVE_DONE) continue;
            run_round(w);
            if (w->state == WAVE_DIVERGED) return diverged(w, err);
            live -= w->state == WAVE_DONE;
        }
    }
    return KGEN_OK;
}
