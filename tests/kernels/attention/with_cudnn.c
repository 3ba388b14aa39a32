/* with_cudnn.c - the choice of attention as built with cudnn-frontend. */
#include "zd_config.h"
#undef ZD_HAVE_CUDNN
#define ZD_HAVE_CUDNN 1
#include "kernels/attention/attention_engine.c"
#include "kernels/attention/attention_facts.c"
