# The checkpoint of one step as a model folder. `step@N` takes step N of the segment that the receipt ends.
rule convert:
    input:
        unpack(plan.convert_inputs),
    output:
        "results/receipts/convert/{arm}/seed{seed}/step{step}.json",
    log:
        "logs/convert/{arm}/seed{seed}/step{step}.log",
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        **plan.resources("convert"),
    params:
        spec=plan.spec("convert"),
        code=plan.code("convert"),
    shell:
        "internalize stage convert --spec {params.spec:q} --code {params.code} --output {output}"
        " --input base={input.base} --input 'step@{wildcards.step}={input.segment}' > {log} 2>&1"
