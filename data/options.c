#include "data/dataset.h"

struct data_options data_options_default(void)
{
    return (struct data_options){
            .cutoff_len = 2048,
            .packing = PACKING_AUTO,
            .shuffle = SHUFFLE_AUTO,
            .add_eos = true,
            .chat_template = CHAT_AUTO,
            .train_on = TRAIN_ON_ASSISTANT,
            .cache_dir = "auto",
            .prefetch = 4,
    };
}

struct data_entry data_entry_default(void)
{
    return (struct data_entry){
            .name = "",
            .split = "auto",
            .format = DATA_AUTO,
            .field = "text",
            .messages_field = "messages",
            .role_field = "role",
            .content_field = "content",
    };
}
