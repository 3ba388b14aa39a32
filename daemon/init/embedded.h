/* embedded.h - the job files of deploy/recipes, and the tables of other trainers'
 * keys (formats). */
#pragma once

#include "base/embedded.h"

extern const char embedded_recipes[], embedded_formats[]; /* embedded.S */
