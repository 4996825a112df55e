rule report:
    input:
        unpack(plan.report_inputs),
    output:
        "results/receipts/report.json",
    log:
        "logs/report.log",
    conda:
        "../envs/cpu.yaml"
    params:
        spec=plan.spec("report"),
        code=plan.code("report"),
    shell:
        "internalize stage report --spec {params.spec:q} --code {params.code} --output {output}"
        " --input knowledge={input.knowledge} --input base={input.base} --input gate={input.gate}"
        " --input 'rows.={input.rows}' --input 'evals.={input.evals}' --input 'step.*={input.segments}'"
        " > {log} 2>&1"
