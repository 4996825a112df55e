# A base from the hub is fetched on the machine that runs Snakemake (a login node): every other job works offline.
if plan.fetches_base:

    localrules:
        base,


rule base:
    output:
        "results/receipts/base.json",
    log:
        "logs/base.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **plan.resources("base"),
    params:
        spec=plan.spec("base"),
        code=plan.code(plan.base_stage),
    shell:
        f"internalize stage {plan.base_stage}"
        " --spec {params.spec:q} --code {params.code} --output {output} > {log} 2>&1"


# The gate stands before the arms: nothing is trained on a base that cannot use knowledge from its prompt.
rule gate:
    input:
        base=rules.base.output,
        knowledge=rules.knowledge.output,
    output:
        "results/receipts/gate.json",
    log:
        "logs/gate.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **plan.resources("gate"),
    params:
        spec=plan.spec("gate"),
        code=plan.code("gate"),
    shell:
        "internalize stage gate --spec {params.spec:q} --code {params.code} --output {output}"
        " --input base={input.base} --input knowledge={input.knowledge} > {log} 2>&1"
