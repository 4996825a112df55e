rule evals:
    input:
        unpack(plan.evals_inputs),
    output:
        "results/receipts/evals/{arm}/seed{seed}.json",
    log:
        "logs/evals/{arm}/seed{seed}.log",
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        **plan.resources("evals"),
    params:
        spec=plan.spec("evals"),
        code=plan.code("evals"),
    shell:
        "internalize stage evals --spec {params.spec:q} --code {params.code} --output {output}"
        " --input base={input.base} --input knowledge={input.knowledge} --input 'step*={input.segments}'"
        " > {log} 2>&1"


# The base itself, which every arm starts from, measured once.
rule evals_base:
    input:
        base=rules.base.output,
        knowledge=rules.knowledge.output,
    output:
        "results/receipts/evals/base.json",
    log:
        "logs/evals/base.log",
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        **plan.resources("evals_base"),
    params:
        spec=plan.spec("evals_base"),
        code=plan.code("evals"),
    shell:
        "internalize stage evals --spec {params.spec:q} --code {params.code} --output {output}"
        " --input base={input.base} --input knowledge={input.knowledge} > {log} 2>&1"
