rule report:
    input:
        unpack(plan.report_inputs),
    output:
        "results/receipts/report.json",
    log:
        "logs/report.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **plan.resources("report"),
    params:
        spec=plan.spec("report"),
        code=plan.code("report"),
    shell:
        "internalize stage report --spec {params.spec:q} --code {params.code} --output {output}"
        " --input knowledge={input.knowledge} --input base={input.base} --input gate={input.gate}"
        " --input 'rows.={input.rows}' --input 'evals.={input.evals}' --input 'step.*={input.segments}'"
        " > {log} 2>&1"


# The workflow's own pictures. They follow the plan (params.spec), not what has been computed.
rule graphs:
    output:
        "results/rulegraph.svg",
        "results/dag.svg",
    log:
        "logs/graphs.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **plan.resources("graphs"),
    params:
        spec=plan.spec("graphs"),
        code=plan.code("graphs"),
    shell:
        "internalize graphs --spec {params.spec:q} --folder results > {log} 2>&1"


# The page that people open; it reads the store. `spec` is a hash of its own files, which `code` does not see.
rule page:
    input:
        report="results/receipts/report.json",
        archive="results/receipts/archive.json",
    output:
        report("results/report/index.html", category="Study", labels={"page": "what happened"}),
    log:
        "logs/page.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **plan.resources("page"),
    params:
        spec=plan.spec("page"),
        code=plan.code("page"),
    shell:
        "internalize page --output {output} > {log} 2>&1"
