#include "base/must.h"
#include "model/activations.h"

static void emit(struct unit_events *e, int unit, bool acquire)
{
    e->list[e->count++] = (struct unit_event){unit, acquire};
}

static void emit_forward(
        struct unit_events *e, const struct model_config *config)
{
    for (int unit = 0; unit <= config->layers; unit++) {
        emit(e, unit, true);
        emit(e, unit, false);
    }
    emit(e, config->layers + 1, true);
    if (config->tied) { /* the head's matrix belongs to the embedding's unit */
        emit(e, 0, true);
        emit(e, 0, false);
    }
    emit(e, config->layers + 1, false);
}

struct unit_events model_unit_events(
        const struct model_config *config, const struct param_table *table,
        struct checkpointing checkpointing, enum model_pass pass)
{
    /* forward: each unit, and once more the embedding; backward: layers */
    size_t most = 4 * (size_t)config->layers + 6;
    struct unit_events e = {zd_array(most, sizeof *e.list), 0};
    emit_forward(&e, config);
    if (pass == MODEL_EVAL)
        return e;
    int first = activations_first_layer(config, table);
    int segment = checkpointing_segment(checkpointing, config->layers);
    /* Without recomputation each layer is a segment. */
    segment = segment < 1 ? 1 : segment;
    int kept = config->layers + 1 - first;
    int segments = (kept + segment - 1) / segment;
    /* Layers of a recomputed segment stay acquired until their backward is
     * done: one gather serves both. */
    for (int s = segments - 1; s >= 0; s--) {
        int from = first + s * segment, to = from + segment - 1;
        to = to < config->layers ? to : config->layers;
        for (int layer = from; layer <= to; layer++)
            emit(&e, layer, true);
        for (int layer = to; layer >= from; layer--)
            emit(&e, layer, false);
    }
    return e;
}
