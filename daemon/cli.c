#include "daemon/cli.h"

#include "zd_config.h"

#include <stdio.h>

int cli_main(int argc, char **argv)
{
    printf("zerod %s\n", ZD_VERSION);
    return 0;
}
