# small_job.sh - the job of scripts that need any job, in the folder where they stand. Sourced by sh and bash.
#   small_inputs FIXTURES   a model of two layers in model/, a text in data.txt
#   small_job FIXTURES      those and job.toml: three steps in fp32, on one core
small_inputs() {
    local i
    cp -r "$1/llama/model" model
    for i in 1 2 3 4 5 6 7 8; do
        echo "The miller's daughter kept the accounts of the mill, and she kept them better than her father had, line $i."
    done >data.txt
}

small_job() {
    small_inputs "$1"
    cp "$1/../support/small.toml" job.toml
}
