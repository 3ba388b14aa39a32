/* banner.h - what was understood and chosen, before step 1. */
#ifndef ZD_DAEMON_REPORT_BANNER_H
#define ZD_DAEMON_REPORT_BANNER_H

#include "train/train.h"

void report_banner(const struct train_banner *banner);

#endif
