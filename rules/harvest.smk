rule harvest:
    input:
        base=rules.base.output,
        knowledge=rules.knowledge.output,
    output:
        "results/receipts/harvest/{harvest}.json",
    log:
        "logs/harvest/{harvest}.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **plan.resources("harvest"),
    params:
        spec=plan.spec("harvest"),
        code=plan.code("harvest"),
    shell:
        "internalize stage harvest --spec {params.spec:q} --code {params.code} --output {output}"
        " --input base={input.base} --input knowledge={input.knowledge} > {log} 2>&1"
