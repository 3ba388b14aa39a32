/* hub.h - what the Hugging Face Hub has: the names, and its cache of models. */
#pragma once

#include <stdbool.h>

/* "Qwen/Qwen2.5-0.5B", and the names from before there were slashes. */
bool hub_is_name(const char *path);

/* How a model is had where `path` is none: it is downloaded by its name, unless
 * the hub's cache on this machine has it, below a folder for each commit. False:
 * `path` is neither a name nor the cache's folder of a model. */
enum { HUB_HELP_BYTES = 1000 };
bool hub_help(const char *path, char out[HUB_HELP_BYTES]);
/* The same of a data set, but the cache is not looked at. */
bool hub_help_data(const char *path, char out[HUB_HELP_BYTES]);
