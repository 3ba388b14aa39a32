/* axolotl_data.h - data sets of axolotl's files. */
#ifndef ZD_DAEMON_INIT_AXOLOTL_DATA_H
#define ZD_DAEMON_INIT_AXOLOTL_DATA_H

#include "daemon/init/foreign.h"

/* datasets, test_datasets, pretraining_dataset: a list of them. */
foreign_fn axolotl_datasets;

#endif
