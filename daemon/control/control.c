#include "daemon/control/control.h"

#include "base/log.h"
#include "base/must.h"
#include "base/threads.h"
#include "daemon/control/routes.h"
#include "daemon/http/http.h"
#include "daemon/sinks/sink.h"
#include "daemon/state/messages.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EVENTS_BYTES = 16 << 20,  /* thousands of ranks, and what waits with them */
    COMMANDS_BYTES = 1 << 18, /* some 60 */
    TAKE_MAX = 1024,          /* messages in one turn of the loop */
    GLANCE_MS = 100,          /* steps do not wake the thread */
    SINKS_GLANCES = 20,
    LAST_ANSWERS_SECONDS = 2
};

struct control {
    const struct train_job *job;
    struct message_queue *events;   /* from the trainer: what happened */
    struct message_queue *commands; /* to the trainer */
    struct tee tee;
    struct train_control callbacks;
    pthread_t thread;
    uv_async_t wake;
    _Atomic int ending;    /* the enum train_run_state of the end; 0: not yet */
    char socket_path[512]; /* "": none */
    /* the thread's alone, once it runs */
    uv_loop_t loop;
    uv_timer_t glance;
    unsigned glances;
    struct run_state *state;
    struct routes *routes;
    struct http_server *http;
    struct sinks *sinks;
    json_t *config;
};

/* --- messages of the run --- */

/* False: nothing was there. */
static bool take_one(struct control *control)
{
    enum message_kind kind;
    const void *payload = queue_peek(control->events, &kind);
    if (!payload)
        return false;
    const struct kept_event *event =
            run_state_take(control->state, kind, payload);
    if (kind == MESSAGE_DONE) {
        const struct message_done *done = payload;
        routes_done(control->routes, done);
        json_decref(done->result);
    }
    if (kind == MESSAGE_BANNER || (event && !strcmp(event->kind, "state")))
        sinks_take(control->sinks, "tick", control->state);
    else if (kind == MESSAGE_STEP || kind == MESSAGE_EVENT)
        sinks_take(
                control->sinks, event ? event->kind : "step", control->state);
    queue_drop(control->events);
    return true;
}

static void take_some(void *ctx)
{
    struct control *control = ctx;
    int count = 0;
    while (count < TAKE_MAX && take_one(control))
        count++;
    control->state->queue_dropped = queue_dropped(control->events);
    if (count == TAKE_MAX)
        uv_async_send(&control->wake);
}

/* --- the end --- */

static void end_now(struct control *control, enum train_run_state how)
{
    while (take_one(control))
        ;
    if (how == RUN_DONE && control->state->stopped_by[0])
        how = RUN_STOPPED;
    if (control->state->state < RUN_DONE)
        run_state_end(control->state, how);
    routes_end(control->routes);
    sinks_close(control->sinks, control->state);
    http_destroy(control->http, LAST_ANSWERS_SECONDS);
    uv_close((uv_handle_t *)&control->wake, NULL);
    uv_close((uv_handle_t *)&control->glance, NULL);
}

/* --- the loop, and where its thread runs --- */

/* mpirun and srun bind a rank to its cores after the fork: who started us still
 * has them all. One core means that the trainer fills it; with more there is
 * room, and the binding stays. A taskset of the user's is his will. */
static void leave_the_trainers_core(void)
{
    cpu_set_t mine, parents;
    bool is_bound = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") ||
                    getenv("SLURM_STEP_ID");
    if (!is_bound || sched_getaffinity(0, sizeof mine, &mine) != 0 ||
        CPU_COUNT(&mine) > 1)
        return;
    if (sched_getaffinity(getppid(), sizeof parents, &parents) == 0 &&
        CPU_COUNT(&parents) > 1)
        sched_setaffinity(0, sizeof parents, &parents);
}

static void on_wake(uv_async_t *wake)
{
    struct control *control = wake->data;
    int ending = atomic_load(&control->ending);
    if (ending)
        end_now(control, (enum train_run_state)ending);
    else
        take_some(control);
}

static void on_glance(uv_timer_t *timer)
{
    struct control *control = timer->data;
    take_some(control);
    routes_tick(control->routes);
    if (++control->glances % SINKS_GLANCES == 0)
        sinks_take(control->sinks, "tick", control->state);
}

static void *run_loop(void *arg)
{
    struct control *control = arg;
    leave_the_trainers_core();
    uv_run(&control->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* Called by the threads that produce events. */
static void wake_loop(void *ctx)
{
    struct control *control = ctx;
    uv_async_send(&control->wake);
}

/* --- called by the trainer, in its thread --- */

static bool next_command(void *ctx, int64_t step, struct train_command *out)
{
    struct control *control = ctx;
    enum message_kind kind;
    const void *command = queue_peek(control->commands, &kind);
    if (!command)
        return false;
    memcpy(out, command, sizeof *out);
    queue_drop(control->commands);
    return true;
}

static void command_done(
        void *ctx, const struct train_command *command, int64_t step,
        const struct zd_error *error, const json_t *result)
{
    struct control *control = ctx;
    struct message_done message = {
            .command = *command,
            .step = step,
            .failed = error != NULL,
            .result = result ? json_deep_copy(result) : NULL};
    if (error)
        message.error = *error;
    if (!queue_push(control->events, MESSAGE_DONE, &message, sizeof message))
        json_decref(message.result);
}

/* --- from the loop to the trainer --- */

static bool post_command(void *ctx, const struct train_command *command)
{
    struct control *control = ctx;
    return queue_push(
            control->commands, MESSAGE_COMMAND, command, sizeof *command);
}

/* --- life --- */

static enum zd_status find_socket_path(struct control *control)
{
    const struct control_options *options = &control->job->control;
    if (options->socket == CONTROL_PATH)
        ZD_PRINT(control->socket_path, "%s", options->socket_path);
    if (options->socket != CONTROL_AUTO)
        return ZD_OK;
    ZD_TRY(http_socket_path(
            control->job->job.name, control->socket_path,
            sizeof control->socket_path));
    enum zd_status status = http_socket_make_folder(control->socket_path);
    if (status == ZD_OK || strcmp(zd_error_get()->code, "E1042") != 0)
        return status;
    /* any user can make /tmp/zerod-UID first: that must not end this job */
    zd_log_warning(
            "%s; this run has no socket: set control.socket to another path",
            zd_error_get()->what);
    zd_error_clear();
    control->socket_path[0] = '\0';
    return ZD_OK;
}

static enum zd_status listen_to(struct control *control)
{
    const struct control_options *options = &control->job->control;
    struct http_options http = {
            .socket_path = control->socket_path,
            .handler = routes_handle,
            .ctx = control->routes};
    if (!control->socket_path[0])
        return ZD_OK;
    ZD_TRY(http_create(&control->loop, &http, &control->http));
    if (options->metrics_listen)
        ZD_TRY(http_listen_tcp(
                control->http, options->metrics_listen, "/metrics"));
    return ZD_OK;
}

static enum zd_status fail_loop(int error)
{
    ZD_FAIL(ZD_ERR_UNFIT, "E1060", "the control loop cannot start: %s",
            uv_strerror(error));
    if (error == UV_EMFILE)
        zd_fail_help("allow this process more open files: ulimit -n 4096");
    return ZD_ERR_UNFIT;
}

/* libuv ends the process where it cannot open the descriptors that it keeps for
 * itself (8 of version 1.50), so they are tried first. */
static int try_descriptors(void)
{
    int opened[8], count = 0, error = 0;
    while (count < 8 && !error) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            error = uv_translate_sys_error(errno);
        else
            opened[count++] = fd;
    }
    while (count > 0)
        close(opened[--count]);
    return error;
}

/* On a failure nothing is left open. */
static enum zd_status start_handles(struct control *control)
{
    int error = try_descriptors();
    if (!error)
        error = uv_loop_init(&control->loop);
    if (error)
        return fail_loop(error);
    error = uv_async_init(&control->loop, &control->wake, on_wake);
    if (error) {
        uv_loop_close(&control->loop);
        return fail_loop(error);
    }
    uv_timer_init(&control->loop, &control->glance);
    control->wake.data = control->glance.data = control;
    uv_timer_start(&control->glance, on_glance, GLANCE_MS, GLANCE_MS);
    return ZD_OK;
}

static void release(struct control *control)
{
    routes_destroy(control->routes);
    run_state_destroy(control->state);
    json_decref(control->config);
    queue_destroy(control->events);
    queue_destroy(control->commands);
    free(control);
}

static enum zd_status build(struct control *control)
{
    control->events = queue_create(EVENTS_BYTES, wake_loop, control);
    control->commands = queue_create(COMMANDS_BYTES, NULL, NULL);
    control->state = run_state_create(control->job, NULL);
    control->state->config = control->config;
    control->routes = routes_create(&(struct routes_options){
            .state = control->state,
            .readonly = control->job->control.readonly,
            .refresh = take_some,
            .post = post_command,
            .ctx = control});
    ZD_TRY(find_socket_path(control));
    if (control->socket_path[0])
        control->state->socket_path = control->socket_path;
    ZD_TRY(listen_to(control));
    control->sinks = sinks_open(control->job);
    int error =
            thread_start(&control->thread, "zerod-control", run_loop, control);
    return error ? ZD_FAIL(ZD_ERR_MEMORY, "E1060",
                           "the control thread cannot start: %s",
                           strerror(error))
                 : ZD_OK;
}

enum zd_status control_create(
        const struct job *job, struct control **control_out)
{
    struct control *control = zd_array(1, sizeof *control);
    control->job = job_options(job);
    control->config = job_json(job);
    enum zd_status status = start_handles(control);
    if (status == ZD_OK && (status = build(control)) != ZD_OK) {
        end_now(control, RUN_FAILED);
        uv_run(&control->loop, UV_RUN_DEFAULT);
        uv_loop_close(&control->loop);
    }
    if (status == ZD_OK)
        *control_out = control;
    else
        release(control);
    return status;
}

struct train_observer control_observer(
        struct control *control, const struct train_observer *next)
{
    if (!control)
        return *next;
    control->tee = (struct tee){
            .queue = control->events,
            .next = next,
            .socket_path =
                    control->socket_path[0] ? control->socket_path : NULL};
    control->callbacks = (struct train_control){
            .ctx = control, .next = next_command, .done = command_done};
    struct train_observer observer = tee_observer(&control->tee);
    observer.control = &control->callbacks;
    return observer;
}

void control_destroy(struct control *control, enum zd_status status)
{
    if (!control)
        return;
    enum train_run_state how = status == ZD_OK            ? RUN_DONE
                               : status == ZD_ERR_STOPPED ? RUN_STOPPED
                                                          : RUN_FAILED;
    atomic_store(&control->ending, (int)how);
    uv_async_send(&control->wake);
    pthread_join(control->thread, NULL);
    uv_loop_close(&control->loop);
    release(control);
}
