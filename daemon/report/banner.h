/* banner.h - what was understood and chosen, before step 1. */
#pragma once

#include "train/train.h"

void report_banner(const struct train_banner *banner);
