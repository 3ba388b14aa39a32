/* plan_needs.c - bytes of masters and states of a rank, and a cache of them.
 *
 * A search plans thousands of jobs that differ in what states do not depend on:
 * batch, checkpointing, one of the stages 1 to 3. Their ranks are
 * walked once. */
#include "zero/plan_parts.h"

#include <string.h>

/* Everything that plan_offload_bytes and plan_state_bytes ask. Members are set
 * one by one, so that padding is equal too. */
static void key_of(const struct zero_plan *plan, struct zero_memo_key *key)
{
    const struct zero_request *request = &plan->request;
    memset(key, 0, sizeof *key);
    key->table = request->table;
    key->world = request->world;
    key->states_cut = plan->states_cut;
    /* which tensors are segments of their own */
    if (plan->params_cut)
        key->param_persistence_threshold =
                request->options.param_persistence_threshold;
    key->accumulates = plan->grads_pass && request->accumulation > 1;
    key->dtype = request->dtype;
    key->spill_bytes = request->spill_bytes;
    memcpy(&key->optim, &request->optim, sizeof key->optim);
    memcpy(&key->offload, &request->offload, sizeof key->offload);
}

static const struct zero_needs *find(
        const struct zero_memo *memo, const struct zero_memo_key *key)
{
    for (int i = 0; i < ZERO_MEMO_KEEPS; i++)
        if (memcmp(&memo->kept[i].key, key, sizeof *key) == 0)
            return &memo->kept[i].needs;
    return NULL;
}

enum zd_status plan_needs(struct zero_plan *plan, struct zero_memo *memo)
{
    struct zero_memo_key key;
    if (!plan->request.train)
        return ZD_OK;
    key_of(plan, &key);
    const struct zero_needs *known = memo ? find(memo, &key) : NULL;
    if (known) {
        plan->needs = *known;
        return ZD_OK;
    }
    ZD_TRY(plan->states_on_host ? plan_offload_bytes(plan)
                                : plan_state_bytes(plan));
    if (memo) {
        memo->kept[memo->next].key = key;
        memo->kept[memo->next].needs = plan->needs;
        memo->next = (memo->next + 1) % ZERO_MEMO_KEEPS;
    }
    return ZD_OK;
}
