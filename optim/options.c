#include "optim/optim.h"

struct optim_options optim_options_default(void)
{
    return (struct optim_options){
            .name = OPTIM_ADAMW,
            .stable_embedding = true,
            .learning_rate = 2e-5,
            .lr_scheduler_type = LR_COSINE,
            .min_lr_ratio = 0.1,
            .warmup_steps = 0.03,
            .wsd_decay_steps = 0.2,
            .weight_decay = 0.1,
            .adam_beta1 = 0.9,
            .adam_beta2 = 0.95,
            .adam_epsilon = 1e-8,
            .max_grad_norm = 1,
    };
}
