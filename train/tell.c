/* tell.c - what rank 0's observer hears beside steps. */
#include "train/trainer.h"

void trainer_tell_state(struct trainer *trainer, enum train_run_state state)
{
    const struct train_observer *observer = trainer->observer;
    if (trainer->run_state == state && state != RUN_STARTING)
        return;
    trainer->run_state = state;
    if (trainer_is_first(trainer) && observer->state)
        observer->state(observer->ctx, state, trainer->state.step);
}
