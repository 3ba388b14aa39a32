#include "daemon/cli.h"
#include "daemon/output.h"

int main(int argc, char **argv)
{
    output_init();
    return cli_main(argc, argv);
}
