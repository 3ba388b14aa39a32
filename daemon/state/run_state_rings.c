/* run_state_rings.c - the last events, warnings and samples of a run.
 */
#include "daemon/state/run_state_rings.h"

#include "base/must.h"
#include "daemon/state/messages.h"

#include <stdlib.h>
#include <string.h>

void run_state_rings_init(struct run_state *state)
{
    state->events = zd_array(EVENTS_KEPT, sizeof *state->events);
    state->samples = zd_array(SAMPLES_KEPT, sizeof *state->samples);
}

void run_state_rings_fini(struct run_state *state)
{
    for (int i = 0; i < EVENTS_KEPT; i++)
        free(state->events[i].text);
    for (int i = 0; i < SAMPLES_KEPT; i++) {
        free(state->samples[i].prompt);
        free(state->samples[i].text);
    }
    for (int i = 0; i < WARNINGS_KEPT; i++)
        free(state->warnings[i].message);
    free(state->events);
    free(state->samples);
}

/* The place of one more; in a full ring, that of the oldest. */
static int ring_push(int *first, int *count, int kept)
{
    int at = (*first + *count) % kept;
    if (*count == kept)
        *first = (*first + 1) % kept;
    else
        ++*count;
    return at;
}

void run_state_keep_warning(
        struct run_state *state, const struct message_event *event,
        const json_t *members)
{
    const char *message =
            json_string_value(json_object_get(members, "message"));
    int at = ring_push(
            &state->warning_first, &state->warning_count, WARNINGS_KEPT);
    free(state->warnings[at].message);
    state->warnings[at] = (struct kept_warning){
            .time = event->time,
            .step = event->step,
            .message = zd_must(strdup(message ? message : ""))};
}

void run_state_keep_sample(
        struct run_state *state, const struct message_event *event,
        const json_t *members)
{
    const char *prompt = json_string_value(json_object_get(members, "prompt"));
    const char *text = json_string_value(json_object_get(members, "text"));
    if (!prompt || !text)
        return;
    int at =
            ring_push(&state->sample_first, &state->sample_count, SAMPLES_KEPT);
    struct kept_sample *kept = &state->samples[at];
    free(kept->prompt);
    free(kept->text);
    *kept = (struct kept_sample){
            .step = event->step,
            .time = event->time,
            .prompt = zd_must(strdup(prompt)),
            .text = zd_must(strdup(text))};
}

const struct kept_event *run_state_keep_event(
        struct run_state *state, const struct message_event *event)
{
    int at = ring_push(&state->event_first, &state->event_count, EVENTS_KEPT);
    struct kept_event *kept = &state->events[at];
    free(kept->text);
    *kept = (struct kept_event){
            .id = event->id,
            .step = event->step,
            .text = zd_must(strdup((const char *)(event + 1)))};
    memcpy(kept->kind, event->kind, sizeof kept->kind);
    return kept;
}

static void keep_past_sample(
        struct run_state *state, const struct kept_event *event)
{
    json_t *members = json_loads(event->text, 0, NULL);
    struct message_event sample = {
            .step = event->step,
            .time = json_number_value(json_object_get(members, "time"))};
    run_state_keep_sample(state, &sample, members);
    json_decref(members);
}

void run_state_take_past(struct run_state *state, struct past *past)
{
    if (!past)
        return;
    for (int i = 0; i < state->event_count; i++)
        past_add(past, run_state_event(state, i));
    for (int i = 0; i < EVENTS_KEPT; i++)
        free(state->events[i].text);
    memset(state->events, 0, EVENTS_KEPT * sizeof *state->events);
    state->event_first = state->event_count = 0;
    int first = past->count > EVENTS_KEPT ? past->count - EVENTS_KEPT : 0;
    for (int i = first; i < past->count; i++) {
        struct kept_event *event = &past->events[i];
        if (strcmp(event->kind, "sample") == 0)
            keep_past_sample(state, event);
        state->events[state->event_count++] = *event;
        event->text = NULL;
    }
    past_free(past);
}

const struct kept_event *run_state_event(const struct run_state *state, int i)
{
    return &state->events[(state->event_first + i) % EVENTS_KEPT];
}

int run_state_events_after(const struct run_state *state, int64_t id)
{
    int low = 0, high = state->event_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (run_state_event(state, middle)->id > id)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
