/* Requests through libcurl. It knows TLS, proxies, IPv6 and connections that are kept, and is
 * on every machine; it is loaded when a remote layer is named, so that a process without one
 * does not have it. A connection belongs to a handle, and a handle to one call at a time. */
#define _GNU_SOURCE
#include "remote.h"

#ifdef KGEN_HAVE_CURL

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>

enum { HANDLES = 8, URL_MAX = 2048 };

/* clang-format off */
#define FUNCTIONS(X)                                                                              \
    X(global_init) X(easy_init) X(easy_setopt) X(easy_perform) X(easy_getinfo) X(easy_reset)      \
    X(easy_cleanup) X(easy_strerror)
/* clang-format on */

static struct {
#define DECLARE(name) __typeof__(&curl_##name) name;
    FUNCTIONS(DECLARE)
#undef DECLARE
    char why[256]; /* "": loaded */
} api;

struct kgen__http {
    char *base;
    pthread_mutex_t mutex;
    CURL *idle[HANDLES];
    int idle_count;
    pid_t owner; /* connections are not shared with a child */
};

/* ---- the library ---------------------------------------------------------------------- */

static void load_api(void) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof names[0]; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    snprintf(api.why, sizeof api.why, "%s", library ? "" : dlerror());
#define LOAD(name)                                                           \
    if (!*api.why && !(*(void **)&api.name = dlsym(library, "curl_" #name))) \
        snprintf(api.why, sizeof api.why, "libcurl has no curl_" #name);
    FUNCTIONS(LOAD)
#undef LOAD
    if (!*api.why && api.global_init(CURL_GLOBAL_ALL) != CURLE_OK)
        snprintf(api.why, sizeof api.why, "libcurl does not start");
}

kgen_status kgen__http_open(kgen__http **out, const char *base, kgen_error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (strncmp(base, "http://", 7) != 0 && strncmp(base, "https://", 8) != 0)
        return kgen_fail(err, KGEN_E_IO, "http:// or https:// expected");
    if (strlen(base) > URL_MAX / 2) return kgen_fail(err, KGEN_E_IO, "too long");
    pthread_once(&once, load_api);
    if (*api.why) return kgen_fail(err, KGEN_E_IO, "%s", api.why);
    kgen__http *http = calloc(1, sizeof *http);
    if (http) http->base = strdup(base);
    if (!http || !http->base) {
        free(http);
        return kgen_fail(err, KGEN_E_NOMEM, "no memory");
    }
    for (size_t end = strlen(base); end > 0 && base[end - 1] == '/'; end--) http->base[end - 1] = 0;
    pthread_mutex_init(&http->mutex, NULL);
    http->owner = getpid();
    *out = http;
    return KGEN_OK;
}

void kgen__http_close(kgen__http *http) {
    if (!http) return;
    if (http->owner == getpid())
        while (http->idle_count > 0) api.easy_cleanup(http->idle[--http->idle_count]);
    pthread_mutex_destroy(&http->mutex);
    free(http->base);
    free(http);
}

/* ---- handles --------------------------------------------------------------------------- */

static CURL *take_handle(kgen__http *http) {
    CURL *handle = NULL;
    pthread_mutex_lock(&http->mutex);
    if (http->owner != getpid()) { /* those of the parent stay its own */
        http->owner = getpid();
        http->idle_count = 0;
    }
    if (http->idle_count > 0) handle = http->idle[--http->idle_count];
    pthread_mutex_unlock(&http->mutex);
    return handle ? handle : api.easy_init();
}

static void give_handle(kgen__http *http, CURL *handle) {
    api.easy_reset(handle); /* connections are kept */
    pthread_mutex_lock(&http->mutex);
    int kept = http->idle_count < HANDLES;
    if (kept) http->idle[http->idle_count++] = handle;
    pthread_mutex_unlock(&http->mutex);
    if (!kept) api.easy_cleanup(handle);
}

/* ---- a call ----------------------------------------------------------------------------- */

typedef struct transfer {
    kgen__http_call *call;
    size_t done;
} transfer;

static size_t receive(char *bytes, size_t one, size_t size, void *user) {
    transfer *t = user;
    (void)one;
    if (t->call->put) return size;                /* what a server says to a PUT */
    if (size > t->call->size - t->done) return 0; /* ends the transfer: longer than it may be */
    memcpy(t->call->got + t->done, bytes, size);
    t->done += size;
    return size;
}

static size_t send_some(char *room, size_t one, size_t size, void *user) {
    transfer *t = user;
    size_t left = t->call->size - t->done, taken = left < one * size ? left : one * size;
    memcpy(room, t->call->put + t->done, taken);
    t->done += taken;
    return taken;
}

/* No child that is started meanwhile gets the connection. */
static int on_socket(void *user, curl_socket_t fd, curlsocktype type) {
    (void)user, (void)type;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return CURL_SOCKOPT_OK;
}

static void set_up(CURL *h, const char *url, transfer *t) {
    api.easy_setopt(h, CURLOPT_URL, url);
    api.easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    api.easy_setopt(h, CURLOPT_TIMEOUT_MS, t->call->limit_ms);
    api.easy_setopt(h, CURLOPT_USERAGENT, "kgen");
    api.easy_setopt(h, CURLOPT_SOCKOPTFUNCTION, on_socket);
    api.easy_setopt(h, CURLOPT_WRITEFUNCTION, receive);
    api.easy_setopt(h, CURLOPT_WRITEDATA, t);
    if (!t->call->put) return;
    api.easy_setopt(h, CURLOPT_UPLOAD, 1L);
    api.easy_setopt(h, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L); /* sends at once */
    api.easy_setopt(h, CURLOPT_READFUNCTION, send_some);
    api.easy_setopt(h, CURLOPT_READDATA, t);
    api.easy_setopt(h, CURLOPT_INFILESIZE_LARGE, (curl_off_t)t->call->size);
}

/* A connection that the server has closed must not end the host process. */
static CURLcode perform_quietly(CURL *handle) {
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    int was_pending = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    CURLcode code = api.easy_perform(handle);
    if (!was_pending) (void)sigtimedwait(&pipe, NULL, &(struct timespec){0, 0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

int kgen__http_run(kgen__http *http, kgen__http_call *call) {
    char url[URL_MAX];
    long status = KGEN__HTTP_FAILED;
    transfer t = {call, 0};
    CURL *handle = take_handle(http);
    if (!handle) {
        snprintf(call->why, sizeof call->why, "libcurl: no memory");
        return KGEN__HTTP_FAILED;
    }
    snprintf(url, sizeof url, "%s/%s/%s", http->base, call->folder, call->name);
    set_up(handle, url, &t);
    CURLcode code = perform_quietly(handle);
    if (code == CURLE_OK)
        api.easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    else
        snprintf(call->why, sizeof call->why, "%s", api.easy_strerror(code));
    if (!call->put) call->size = t.done;
    give_handle(http, handle);
    return (int)status;
}

#else

kgen_status kgen__http_open(kgen__http **out, const char *base, kgen_error *err) {
    (void)out, (void)base;
    return kgen_fail(err, KGEN_E_IO, "this kgen was built without libcurl");
}

void kgen__http_close(kgen__http *http) { (void)http; }

int kgen__http_run(kgen__http *http, kgen__http_call *call) {
    (void)http, (void)call;
    return KGEN__HTTP_FAILED;
}

#endif
