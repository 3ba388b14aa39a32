/* config_layers.h - the type of each layer, from config.json. */
#pragma once

#include "model/config_keys.h"

/* Fills config->layer_attention by the family's window rule and, where its
 * class in transformers reads them, layer_types and no_rope_layers. After
 * `settle`: config->ropes are known; with two sets layers that slide take the
 * second. E0302, E0304: a type that is unknown, a list of another length. */
enum zd_status config_read_layers(
        const struct config_reader *reader, struct model_config *config);

/* Twice the tokens that a token of layer 1 .. L sees on average, of T: T itself
 * where the layer has no window. */
double layer_seen_twice(const struct model_config *config, int layer, int T);
