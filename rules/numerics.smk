# Numeric gates in front of the arms, where the study asks for them (`numerics:`); one receipt a gate, all in one
# process. A gate that fails leaves no receipt, and no segment starts.
rule numerics:
    input:
        base=rules.base.output,
    output:
        plan.numerics(),
    log:
        "logs/numerics.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **plan.resources("numerics"),
    params:
        spec=plan.spec("numerics"),
        code=plan.code("numerics"),
    shell:
        "internalize gates --spec {params.spec:q} --code {params.code} --folder results/receipts/numerics"
        " --input base={input.base} > {log} 2>&1"
