/* Threads take clusters of workgroups from the launches that are under way, one at
 * a time. A launch goes through them in an order drawn from the seed; the first
 * failure stops it. The launching thread works as well, so a crew of one has no
 * thread of its own. */
#include "crew.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

/* One launch; lives on the stack of the thread that launches. */
typedef struct job {
    struct job *next;
    const kgen__cpu_work *work;
    const unsigned *order;
    uint64_t seed;
    unsigned clusters;
    atomic_uint taken;  /* of them */
    unsigned helpers;   /* threads of the crew inside; under the crew's lock */
    kgen_status status; /* of the first failure; under the lock */
    kgen_error error;
} job;

typedef struct idle_team {
    struct idle_team *next;
    kgen__team *team;
} idle_team;

struct kgen__crew {
    const kgen_target *persona;
    uint64_t seed;
    atomic_ullong launches;
    pthread_mutex_t lock;
    pthread_cond_t wanted; /* a job came, or `stop` */
    pthread_cond_t left;   /* the last helper left a job */
    job *jobs;
    idle_team *idle; /* teams that no thread uses */
    int stop;
    unsigned threads; /* started ones */
    pthread_t thread[];
};

/* splitmix64 */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static idle_team *team_take(kgen__crew *crew, kgen_error *err) {
    pthread_mutex_lock(&crew->lock);
    idle_team *slot = crew->idle;
    if (slot) crew->idle = slot->next;
    pthread_mutex_unlock(&crew->lock);
    if (slot) return slot;
    slot = malloc(sizeof *slot);
    if (slot && kgen__team_create(&slot->team, crew->persona, err) == KGEN_OK) return slot;
    if (!slot) kgen_fail(err, KGEN_E_NOMEM, "cpu device: no memory for a workgroup");
    free(slot);
    return NULL;
}

static void team_give(kgen__crew *crew, idle_team *slot) {
    pthread_mutex_lock(&crew->lock);
    slot->next = crew->idle;
    crew->idle = slot;
    pthread_mutex_unlock(&crew->lock);
}

static void team_drop(idle_team *slot) {
    kgen__team_free(slot->team);
    free(slot);
}

/* Keeps the first failure and lets nobody take another cluster. */
static void job_fail(kgen__crew *crew, job *j, kgen_status status, const kgen_error *error) {
    atomic_store(&j->taken, j->clusters);
    pthread_mutex_lock(&crew->lock);
    if (j->status == KGEN_OK) {
        j->status = status;
        j->error = *error;
    }
    pthread_mutex_unlock(&crew->lock);
}

static unsigned job_next(job *j) {
    unsigned taken = atomic_load(&j->taken);
    while (taken < j->clusters && !atomic_compare_exchange_weak(&j->taken, &taken, taken + 1)) {
    }
    return taken;
}

static void job_run(kgen__crew *crew, job *j) {
    kgen_error error = {KGEN_E_NOMEM, ""};
    idle_team *slot = team_take(crew, &error);
    if (!slot) {
        job_fail(crew, j, error.status, &error);
        return;
    }
    for (unsigned i = job_next(j); i < j->clusters; i = job_next(j)) {
        unsigned group = (j->order ? j->order[i] : i) * j->work->cluster;
        kgen_status status =
            kgen__team_run(slot->team, j->work, group, mix(j->seed ^ group), &error);
        if (status == KGEN_OK) continue;
        job_fail(crew, j, status, &error);
        team_drop(slot);
        return;
    }
    team_give(crew, slot);
}

static job *job_wanting_help(kgen__crew *crew) {
    job *j = crew->jobs;
    while (j && atomic_load(&j->taken) >= j->clusters) j = j->next;
    return j;
}

static void *worker_main(void *arg) {
    kgen__crew *crew = arg;
    pthread_mutex_lock(&crew->lock);
    while (!crew->stop) {
        job *j = job_wanting_help(crew);
        if (!j) {
            pthread_cond_wait(&crew->wanted, &crew->lock);
            continue;
        }
        j->helpers++;
        pthread_mutex_unlock(&crew->lock);
        job_run(crew, j);
        pthread_mutex_lock(&crew->lock);
        if (--j->helpers == 0) pthread_cond_broadcast(&crew->left);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

static void job_offer(kgen__crew *crew, job *j) {
    pthread_mutex_lock(&crew->lock);
    j->next = crew->jobs;
    crew->jobs = j;
    for (unsigned i = 0; i < crew->threads && i + 1 < j->clusters; i++)
        pthread_cond_signal(&crew->wanted);
    pthread_mutex_unlock(&crew->lock);
}

static void job_withdraw(kgen__crew *crew, job *j) {
    pthread_mutex_lock(&crew->lock);
    job **link = &crew->jobs;
    while (*link != j) link = &(*link)->next;
    *link = j->next;
    while (j->helpers) pthread_cond_wait(&crew->left, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

static unsigned *shuffled(unsigned count, uint64_t seed) {
    unsigned *order = malloc(count * sizeof *order);
    if (!order) return NULL;
    for (unsigned i = 0; i < count; i++) {
        unsigned j = (unsigned)((seed = mix(seed)) % (i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

kgen_status kgen__crew_launch(kgen__crew *crew, const kgen__cpu_work *work, kgen_error *err) {
    uint64_t seed = mix(crew->seed ^ mix(atomic_fetch_add(&crew->launches, 1)));
    unsigned clusters = work->groups / work->cluster;
    job j = {.work = work, .seed = seed, .clusters = clusters, .status = KGEN_OK};
    if (clusters == 1) {
        job_run(crew, &j);
    } else {
        unsigned *order = shuffled(clusters, seed);
        if (!order)
            return kgen_fail(err, KGEN_E_NOMEM, "cpu device: no memory for %u workgroups",
                             work->groups);
        j.order = order;
        job_offer(crew, &j);
        job_run(crew, &j);
        job_withdraw(crew, &j);
        free(order);
    }
    return j.status == KGEN_OK ? KGEN_OK : kgen_fail(err, j.status, "%s", j.error.text);
}

/* Signals belong to the program's own threads. A thread that cannot start is
 * not missed: the launching thread runs everything. */
static void start_threads(kgen__crew *crew, unsigned count) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (crew->threads < count &&
           pthread_create(&crew->thread[crew->threads], NULL, worker_main, crew) == 0)
        crew->threads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

kgen_status kgen__crew_create(kgen__crew **out, const kgen_target *persona, unsigned threads,
                              uint64_t seed, kgen_error *err) {
    unsigned workers = threads - 1;
    kgen__crew *crew = calloc(1, sizeof *crew + workers * sizeof crew->thread[0]);
    if (!crew) return kgen_fail(err, KGEN_E_NOMEM, "cpu device: no memory for its threads");
    crew->persona = persona;
    crew->seed = seed;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->wanted, NULL);
    pthread_cond_init(&crew->left, NULL);
    start_threads(crew, workers);
    *out = crew;
    return KGEN_OK;
}

void kgen__crew_free(kgen__crew *crew) {
    pthread_mutex_lock(&crew->lock);
    crew->stop = 1;
    pthread_cond_broadcast(&crew->wanted);
    pthread_mutex_unlock(&crew->lock);
    for (unsigned i = 0; i < crew->threads; i++) pthread_join(crew->thread[i], NULL);
    while (crew->idle) {
        idle_team *slot = crew->idle;
        crew->idle = slot->next;
        team_drop(slot);
    }
    pthread_cond_destroy(&crew->left);
    pthread_cond_destroy(&crew->wanted);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}
