/* settings.cpp - the environment, reports of mistakes, failures asked for. */
#include "tests/cuda/stand_in/internal.h"

#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace standin
{
namespace
{
struct state {
    std::mutex mutex;
    std::condition_variable unhung;
    char text[1024];
    bool hangs_end;
    std::atomic<bool> is_started{false}; /* by any thread */
    bool is_child;                       /* of a process that had started */
    uint64_t fail_at[FAILURES], count[FAILURES];
    struct counters counters;
};

struct state &state(void)
{
    return only<struct state>();
}

uint64_t bytes_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end;
    double value = strtod(text, &end);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    return (uint64_t)(value * (double)(1ull << shift));
}

/* In the order of enum failure. */
const char *const failure_names[FAILURES] = {
        "malloc",    "pin",       "stream",     "launch", "sticky", "hang",
        "no_device", "no_driver", "old_driver", "busy",   "no_code"};

void add_failure(struct state &s, const char *name, uint64_t number)
{
    for (int i = 0; i < FAILURES; i++)
        if (!strcmp(name, failure_names[i])) {
            s.fail_at[i] = number;
            return;
        }
    fprintf(stderr, "stand-in: no failure is called %s\n", name);
    abort();
}

void set_failures(struct state &s, const char *failures)
{
    memset(s.fail_at, 0, sizeof s.fail_at);
    memset(s.count, 0, sizeof s.count);
    if (!failures)
        return;
    char list[512], *rest = list;
    snprintf(list, sizeof list, "%s", failures);
    for (char *one; (one = strsep(&rest, ",")) != nullptr;) {
        char *colon = strchr(one, ':');
        if (colon)
            *colon = 0;
        if (*one)
            add_failure(s, one, colon ? strtoull(colon + 1, nullptr, 10) : 1);
    }
}

/* Numbers up to the first that is none, or is not there; one that comes twice
 * hides all. */
void read_visible(struct settings &s)
{
    int count = (int)bytes_of("ZD_STANDIN_GPUS", 1);
    const int most = sizeof s.visible / sizeof s.visible[0];
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) {
        for (; s.gpus < count && s.gpus < most; s.gpus++)
            s.visible[s.gpus] = s.gpus;
        return;
    }
    uint64_t seen = 0;
    for (char *end; *list >= '0' && *list <= '9'; list = end + (*end == ',')) {
        long gpu = strtol(list, &end, 10);
        if ((*end && *end != ',') || gpu >= count || gpu >= most)
            return;
        if (seen >> gpu & 1) {
            s.gpus = 0;
            return;
        }
        seen |= 1ull << gpu;
        s.visible[s.gpus++] = (int)gpu;
    }
}

/* TIMES, or TIMES@RANK of Open MPI. */
double read_slow(void)
{
    const char *text = getenv("ZD_STANDIN_SLOW");
    const char *at = text ? strchr(text, '@') : nullptr;
    const char *own = getenv("OMPI_COMM_WORLD_RANK");
    bool is_it = !at || strcmp(at + 1, own ? own : "0") == 0;
    return text && is_it ? strtod(text, nullptr) : 0;
}

void read_capability(struct settings &s)
{
    const char *text = getenv("ZD_STANDIN_CAPABILITY");
    s.major = 9;
    if (text)
        sscanf(text, "%d.%d", &s.major, &s.minor);
}

struct settings read_settings(void)
{
    struct settings s = {};
    read_visible(s);
    s.memory_bytes = bytes_of("ZD_STANDIN_MEMORY", 8ull << 30);
    s.context_bytes = bytes_of("ZD_STANDIN_CONTEXT", 64ull << 20);
    s.shared_bytes = bytes_of("ZD_STANDIN_SHARED", 228 << 10);
    s.abort = bytes_of("ZD_STANDIN_ABORT", 0);
    read_capability(s);
    s.slow = read_slow();
    const char *order = getenv("ZD_STANDIN_ORDER");
    if (order && !strcmp(order, "reverse"))
        s.reversed = true;
    else if (order && *order && strcmp(order, "forward")) {
        s.permuted = true;
        s.seed = strtoull(order, nullptr, 10);
    }
    const char *delays = getenv("ZD_STANDIN_DELAYS");
    if (delays && *delays) {
        s.delays = true;
        s.delay_seed = strtoull(delays, nullptr, 10);
    }
    const char *left_out = getenv("ZD_STANDIN_LEAVE_OUT");
    const char *colon = left_out ? strchr(left_out, ':') : nullptr;
    if (colon) {
        s.left_out_file = strndup(left_out, (size_t)(colon - left_out));
        s.left_out_line = atoi(colon + 1);
    }
    const char *failures = getenv("ZD_STANDIN_FAIL");
    if (failures)
        set_failures(state(), failures);
    return s;
}
} // namespace

const struct settings &settings(void)
{
    static const struct settings one = read_settings();
    return one;
}

struct counters &counters(void)
{
    return state().counters;
}

void report(const char *format, ...)
{
    char text[sizeof state().text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "stand-in for CUDA: %s\n", text);
    {
        locked<struct state> s;
        memcpy(s->text, text, sizeof text);
        s->counters.reports++;
    }
    if (settings().abort)
        abort();
}

bool fails_now(enum failure failure)
{
    settings();
    locked<struct state> s;
    return ++s->count[failure] == s->fail_at[failure];
}

bool lasts(enum failure failure)
{
    settings();
    return state().fail_at[failure] != 0;
}

static void note_fork(void)
{
    state().is_child = state().is_started.load();
}

cudaError_t start_error(void)
{
    struct state &s = state();
    static const int watch = pthread_atfork(nullptr, nullptr, note_fork);
    (void)watch;
    if (lasts(NO_DRIVER) || lasts(OLD_DRIVER))
        return cudaErrorInsufficientDriver;
    if (lasts(NO_DEVICE) || !settings().gpus)
        return cudaErrorNoDevice;
    if (s.is_child)
        return cudaErrorInitializationError;
    s.is_started = true;
    return cudaSuccess;
}

void hang(void)
{
    struct state &s = state();
    std::unique_lock<std::mutex> lock(s.mutex);
    while (!s.hangs_end)
        s.unhung.wait(lock);
}
} // namespace standin

using namespace standin;

void zd_standin_fail(const char *failures)
{
    settings();
    locked<struct state> s;
    set_failures(s.one, failures);
}

void zd_standin_unhang(void)
{
    locked<struct state> s;
    s->hangs_end = true;
    s->unhung.notify_all();
}

struct zd_standin_counters zd_standin_counters(void)
{
    struct counters &c = counters();
    return {c.launches,   c.copies,       c.pageable_copies, c.host_waits,
            c.host_calls, c.device_bytes, c.pinned_bytes,    c.reports};
}

const char *zd_standin_report(void)
{
    return state().text;
}

void zd_standin_forget(void)
{
    {
        locked<struct state> s;
        s->text[0] = 0;
        s->counters.reports = 0;
    }
    for (int i = 0; i < settings().gpus; i++)
        set_sticky(i, cudaSuccess);
    cudaGetLastError();
}
