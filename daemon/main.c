#include "daemon/cli/output.h"
#include "daemon/command/cli.h"

int main(int argc, char **argv)
{
    output_init();
    return cli_main(argc, argv);
}
