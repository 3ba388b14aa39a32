#include "model/families/families.h"

#define ADDRESS(name) &model_##name,
const struct model_family *const model_families[] = {MODEL_FAMILIES(ADDRESS)
                                                             NULL};
