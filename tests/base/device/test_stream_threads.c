/* Streams under a thread sanitizer: rows visit the host and come back through
 * two buffers, and only events keep one row from another's place. On a GPU it
 * is the other way round: from two buffers of the host to the device's memory.
 */
#include "base/device/device_memory.h"
#include "tests/support/tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 40, COUNT = 1000, BUFFERS = 2, ROUNDS = 3 };

struct relay {
    struct stream *down, *up;
    struct event *left[BUFFERS], *here[BUFFERS], *home[ROWS];
    int (*buffer)[COUNT]; /* BUFFERS, which the caller can touch */
    int (*away)[COUNT];   /* ROWS */
};

enum { ROW_BYTES = COUNT * sizeof(int) };

static bool relay_init(struct relay *r, enum stream_mode mode)
{
    void *buffer, *away;
    if (device_take_pinned(BUFFERS * ROW_BYTES, &buffer) != ZD_OK ||
        device_take(ROWS * ROW_BYTES, &away) != ZD_OK)
        return false;
    r->buffer = buffer;
    r->away = away;
    bool ok = stream_create("down", mode, &r->down) == ZD_OK &&
              stream_create("up", mode, &r->up) == ZD_OK;
    for (int i = 0; i < BUFFERS; i++)
        ok = ok && event_create(&r->left[i]) == ZD_OK &&
             event_create(&r->here[i]) == ZD_OK;
    for (int i = 0; i < ROWS; i++)
        ok = ok && event_create(&r->home[i]) == ZD_OK;
    return ok;
}

static void relay_fini(struct relay *r)
{
    stream_destroy(r->down);
    stream_destroy(r->up);
    for (int i = 0; i < BUFFERS; i++) {
        event_destroy(r->left[i]);
        event_destroy(r->here[i]);
    }
    for (int i = 0; i < ROWS; i++)
        event_destroy(r->home[i]);
    device_give_pinned(r->buffer, BUFFERS * ROW_BYTES);
    device_give(r->away, ROWS * ROW_BYTES);
}

/* A slow way: who does not wait for it is early. */
static void dawdle(void *ctx, int64_t arg)
{
    (void)ctx;
    usleep((useconds_t)arg);
}

static void send(struct relay *r, int round)
{
    for (int row = 0; row < ROWS; row++) {
        int b = row % BUFFERS;
        event_wait(r->left[b]);
        for (int i = 0; i < COUNT; i++)
            r->buffer[b][i] = round * 1000000 + row * 1000 + i;
        stream_call(r->down, dawdle, NULL, row % 3 ? 0 : 500);
        stream_copy(r->down, r->away[row], r->buffer[b], ROW_BYTES);
        stream_record(r->down, r->left[b]);
        stream_record(r->down, r->home[row]);
    }
}

static void fetch(struct relay *r, int row)
{
    int b = row % BUFFERS;
    stream_wait(r->up, r->left[b]);
    stream_wait(r->up, r->home[row]);
    stream_call(r->up, dawdle, NULL, row % 3 ? 0 : 500);
    stream_copy(r->up, r->buffer[b], r->away[row], ROW_BYTES);
    stream_record(r->up, r->here[b]);
}

static int receive(struct relay *r, int round)
{
    int wrong = 0;
    fetch(r, ROWS - 1);
    for (int row = ROWS - 1; row >= 0; row--) {
        int b = row % BUFFERS;
        if (row > 0)
            fetch(r, row - 1);
        event_wait(r->here[b]);
        for (int i = 0; i < COUNT; i++)
            wrong += r->buffer[b][i] != round * 1000000 + row * 1000 + i;
    }
    return wrong;
}

static void test(const char *name, enum stream_mode mode)
{
    static struct relay relay;
    memset(&relay, 0, sizeof relay);
    int wrong = relay_init(&relay, mode) ? 0 : 1;
    for (int round = 0; round < ROUNDS && !wrong; round++) {
        send(&relay, round);
        wrong += receive(&relay, round);
    }
    relay_fini(&relay);
    tap_ok(wrong == 0, "rows come back, streams are %s", name);
}

/* To a GPU and back, through slots that are used again and again, into memory
 * of the host that the GPU writes while the host goes on. */
static void test_copies(void)
{
    enum { VALUES = 2 * DEVICE_STAGING_BYTES / sizeof(int) + 1000 };
    const size_t bytes = VALUES * sizeof(int);
    void *device = NULL, *pinned = NULL;
    int *values = malloc(bytes), wrong = 0;
    for (int i = 0; i < VALUES; i++)
        values[i] = i;
    bool ok = device_take(bytes, &device) == ZD_OK &&
              device_take_pinned(bytes, &pinned) == ZD_OK &&
              device_write(device, values, bytes) == ZD_OK &&
              device_read(pinned, device, bytes) == ZD_OK;
    for (int i = 0; ok && i < VALUES; i++)
        wrong += ((int *)pinned)[i] != i;
    device_give_pinned(pinned, bytes);
    device_give(device, bytes);
    free(values);
    tap_ok(ok && !wrong, "what was written comes back");
}

int main(void)
{
    struct device *gpu = NULL;
    bool has_gpu = device_gpu_count(NULL) > 0 &&
                   device_open(DEVICE_CUDA, 0, 1, &gpu) == ZD_OK;
    test("inline", STREAM_INLINE);
    test("a thread", STREAM_THREAD);
    if (has_gpu) {
        device_use(gpu);
        test("a GPU's", STREAM_CUDA);
        test_copies();
        device_close(gpu);
    }
    return tap_done();
}
