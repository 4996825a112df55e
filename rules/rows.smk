# One of `harvest` and `of` is empty, or both are: `--input name=` with nothing behind it gives no input.
rule rows:
    input:
        unpack(plan.rows_inputs),
    output:
        "results/receipts/rows/{rows}.json",
    log:
        "logs/rows/{rows}.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **plan.resources("rows"),
    params:
        spec=plan.spec("rows"),
        code=plan.code("rows"),
    shell:
        "internalize stage rows --spec {params.spec:q} --code {params.code} --output {output}"
        " --input base={input.base} --input knowledge={input.knowledge}"
        " --input 'harvest={input.harvest}' --input 'of={input.of}' > {log} 2>&1"
