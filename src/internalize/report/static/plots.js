// The plots: Vega-Lite, drawn when they come into view, again when the theme or the width changes.
"use strict";

const plots = (() => {
  const {make, data, rows, metrics, colour, section, about} = page;
  const phasesOf = Object.fromEntries(data.study.arms.map((arm) => [arm.name, arm.phases]));
  const all = [];
  let library = null;

  /** Vega is text until the first plot needs it. */
  function vega() {
    if (!library) {
      const script = make("script");
      script.textContent = section("vega").textContent;
      document.head.append(script);
      library = window.vegaEmbed;
    }
    return library;
  }

  function config() {
    const [ink, soft, line, paper] = ["ink", "soft", "line", "paper"].map(colour);
    const text = {labelColor: ink, titleColor: ink, labelFontSize: 11, titleFontSize: 11, labelLimit: 220};
    return {
      background: paper, font: "system-ui, DejaVu Sans, sans-serif", view: {stroke: line},
      axis: {...text, gridColor: line, domainColor: soft, tickColor: soft},
      header: {...text, labelFontSize: 12, labelFontWeight: "bold", labelAnchor: "start"},
      legend: {...text, orient: "bottom", labelLimit: 300, symbolStrokeWidth: 2, symbolSize: 60},
      title: {color: ink, anchor: "start", fontSize: 12},
      text: {color: ink},
    };
  }

  /**
   * A plot: its frame now, its picture when it is seen.
   * `spec(width)` gives Vega-Lite, `table()` the rows that it shows, for the CSV.
   */
  function plot(parent, name, title, caption, spec, table) {
    const canvas = make("div", {class: "canvas"});
    const one = {name, canvas, spec, table, view: null, seen: false, wanted: Promise.resolve()};
    const picture = async (type) => {
      await draw(one, true);
      if (!one.view) return;
      if (type === "svg") page.save(`${name}.svg`, "image/svg+xml", await one.view.toSVG());
      else page.save(`${name}.png`, "image/png", await (await fetch(await one.view.toImageURL("png", 2))).blob());
    };
    const values = () => {
      const found = table();
      page.save(`${name}.csv`, "text/csv", page.csv([...new Set(found.flatMap(Object.keys))], found));
    };
    const tools = make("span", {class: "tools"},
      make("button", {type: "button", onclick: () => picture("svg")}, "SVG"),
      make("button", {type: "button", onclick: () => picture("png")}, "PNG"),
      make("button", {type: "button", onclick: values}, "CSV"));
    const figure = make("figure", {id: `plot-${name}`}, make("div", {class: "head"}, make("h3", {}, title), tools), canvas,
      make("figcaption", {}, caption));
    parent.append(figure);
    all.push(one);
    watch.observe(figure);
    one.figure = figure;
    return one;
  }

  function draw(one, anyway = false) {
    if (!one.seen && !anyway) return one.wanted;
    one.seen = true;
    one.wanted = one.wanted.then(async () => {
      if (!one.table().length) {
        one.canvas.replaceChildren(about("Nothing of this was measured."));
        return;
      }
      const width = Math.max(260, one.canvas.clientWidth - 10);
      const found = await vega()(one.canvas, {...one.spec(width), config: config()}, {actions: false, renderer: "svg"});
      one.view = found.view;
      one.figure.dataset.drawn = String((Number(one.figure.dataset.drawn) || 0) + 1);
    });
    return one.wanted;
  }

  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const one = all.find((candidate) => candidate.figure === entry.target);
      if (entry.isIntersecting && !one.seen) draw(one);
    }
  }, {rootMargin: "300px"});

  let width = window.innerWidth, later = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return; // a phone's address bar comes and goes
    width = window.innerWidth;
    clearTimeout(later);
    later = setTimeout(() => all.filter((one) => one.seen).forEach((one) => draw(one)), 200);
  });
  page.onTheme(() => all.filter((one) => one.seen).forEach((one) => draw(one)));
  window.addEventListener("beforeprint", () => all.forEach((one) => draw(one, true)));
  const redraw = () => all.filter((one) => one.chosen).forEach((one) => draw(one));

  // Pieces of specs

  const columns = (across, least) => Math.max(1, Math.floor(across / least));
  const palette = () => ["blue", "orange", "green", "purple", "red", "sky"].map(colour);
  const DASHES = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]];
  const quantity = (field, title, more = {}) => ({field, type: "quantitative", title, ...more});
  const tip = (...fields) => fields.map((field) => ({field, title: field.replaceAll("_", " ")}));
  const steps = (more = {}) => quantity("step", null, {axis: {tickMinStep: 1, tickCount: 6, format: "d"}, ...more});
  /** 0.0000003 as 3e-7, 427 as 427. */
  const SMALL = "datum.value != 0 && abs(datum.value) < 0.001 ? format(datum.value, '.1e') : format(datum.value, '~r')";

  /** Shading of SFT and joint steps, as rows of a faceted plot. */
  const shading = (names) => names.flatMap((arm) =>
    phasesOf[arm].flatMap((phase, step) =>
      phase === "rl" ? [] : [{arm, what: phase, from: step - 0.5, to: step + 0.5}]));
  const shades = () => ["sft", "joint"].map((phase) => ({
    transform: [{filter: `datum.what == '${phase}'`}],
    mark: {type: "rect", color: colour(phase), opacity: Number(colour("shade"))},
    encoding: {x: {field: "from", type: "quantitative"}, x2: {field: "to"}},
  }));
  const SHADED = "Yellow: SFT steps; green: joint steps; no shading: RL steps.";

  /** Arms in panels: all of them, or of many the chosen ones. */
  const panelled = () => (page.arms.length <= 16 ? page.arms : page.arms.filter((arm) => page.shown.has(arm)));
  const chosen = () => page.arms.filter((arm) => page.shown.has(arm));

  function facet(values, field, names, across, least, layer, more = {}) {
    const many = Math.min(columns(across, least), Math.max(1, names.length));
    return {
      data: {values},
      facet: {field, type: "nominal", sort: names, title: null},
      columns: many,
      spec: {width: Math.floor(across / many) - 58, height: 130, layer},
      resolve: {axis: {x: "independent"}, ...more},
    };
  }

  /** Boxes that choose the arms in colour. */
  function chooser(parent) {
    const boxes = page.arms.map((arm) => make("label", {}, make("input", {
      type: "checkbox", value: arm, checked: page.shown.has(arm), onchange: (event) => {
        if (event.target.checked) page.shown.add(arm);
        else page.shown.delete(arm);
        for (const box of document.querySelectorAll(".chips input")) box.checked = page.shown.has(box.value);
        redraw();
      },
    }), ` ${arm}`));
    parent.append(make("div", {class: "chips"}, make("span", {class: "soft"}, "arms shown:"), boxes));
  }

  // The policies

  const POLICIES = [
    ["sft_only", "rollout_return", "first RL rollout (plays the SFT-only policy)"],
    ["sft_only", "eval_return", "eval after SFT, before RL"],
    ["final", "eval_return", "eval at the end of the arm"],
  ];
  const NOISES = {"sft_only.rollout_return": "rollout_diff_noise", "sft_only.eval_return": "eval_diff_noise",
    "final.eval_return": "eval_diff_noise"};
  const policies = () => POLICIES.flatMap(([table, key, policy]) => rows(table)
    .filter((row) => row[key] !== null)
    .map((row) => ({arm: row.arm, policy, return: row[key], low: row[`${key}_low`], high: row[`${key}_high`],
      noise: row[NOISES[`${table}.${key}`]] === true ? page.NOISE : "told apart, or the reference"})));

  function forest() {
    plot(section("arms"), "policies", "Return of each policy, with its 95 % interval",
      `Hollow: ${page.NOISE} of ${data.study.reference}. Bars: bootstrap over level seeds.`,
      (across) => {
        const told = policies(), names = POLICIES.map(([, , policy]) => policy);
        const y = {field: "arm", type: "nominal", sort: page.arms, title: null, axis: {labelLimit: across < 500 ? 90 : 200}};
        const offset = {field: "policy", sort: names};
        const hue = {field: "policy", type: "nominal", sort: names, title: null, scale: {domain: names, range: palette()},
          legend: {orient: "bottom", columns: across < 700 ? 1 : 3}};
        const shape = {field: "policy", type: "nominal", sort: names, title: null, scale: {domain: names, range: ["square", "circle", "diamond"]},
          legend: {orient: "bottom", columns: across < 700 ? 1 : 3}};
        const points = (transform, mark) => ({transform, mark: {type: "point", size: 55, strokeWidth: 2, opacity: 1, ...mark}, encoding: {
          x: quantity("return", "shaped return"), color: hue, shape, tooltip: tip("arm", "policy", "return", "low", "high", "noise")}});
        return {
          data: {values: told}, width: across - (across < 500 ? 120 : 220), height: {step: 13},
          encoding: {y, yOffset: offset},
          layer: [
            {mark: {type: "rule", strokeWidth: 2}, encoding: {x: quantity("low", "shaped return", {axis: {format: "~g", tickCount: 8}}), x2: {field: "high"}, color: hue}},
            ...(told.some((row) => row.noise === page.NOISE) ? [points([{filter: `datum.noise == '${page.NOISE}'`}], {fill: colour("paper")})] : []),
            ...(told.some((row) => row.noise !== page.NOISE) ? [points([{filter: `datum.noise != '${page.NOISE}'`}], {filled: true})] : []),
          ],
        };
      }, policies);
  }

  // Trajectories

  function played(names) {
    const found = rows("trajectories");
    const reference = found.filter((row) => row.arm === data.study.reference);
    return names.flatMap((arm) => {
      const own = found.filter((row) => row.arm === arm && row.return !== null);
      // by rollout, not by step: an arm with SFT first begins to play later
      const shift = own.length ? own[0].step - own[0].rollout : 0;
      const beside = arm === data.study.reference ? [] : reference.map((row) => ({
        arm, what: "reference", step: row.rollout + shift, return: row.return}));
      const stops = (data.study.arms.find((one) => one.name === arm).stopped ?? []).map((stop) => ({
        arm, what: "stop", step: stop.step, seed: stop.seed, reasons: stop.reasons.join(", ")}));
      return [...own.map(({arm: name, step, phase, rollout, seeds, return: mean, return_low, return_high, seed_min, seed_max,
        clear_rate}) => ({arm: name, what: "rollout", step, phase, rollout, seeds, return: mean, return_low, return_high,
        seed_min, seed_max, clear_rate})), ...beside, ...stops];
    });
  }

  function trajectories() {
    const parent = section("trajectories");
    const only = (what) => [{filter: `datum.what == '${what}'`}];
    const one = plot(parent, "trajectories", "Shaped return of the RL rollouts",
      [`Across: steps of the arm. Line: mean over seeds. Dark band: range of the seeds; light band: 95 % interval over level seeds. Dashed: ${data.study.reference} `
        + "after the same number of rollouts. ", SHADED, " A red cross and line: the collapse guard stopped a seed there."],
      (across) => {
        const names = panelled();
        const longest = Math.max(...names.map((arm) => phasesOf[arm].length), 1);
        const x = steps({scale: {domain: [-0.6, longest - 0.4], nice: false}});
        const y = (field) => quantity(field, "shaped return");
        const band = (low, high, opacity) => ({transform: only("rollout"), mark: {type: "area", opacity, color: colour("blue")},
          encoding: {x, y: y(low), y2: {field: high}}});
        const found = played(names);
        const beside = {transform: only("reference"), mark: {type: "line", strokeDash: [4, 3], color: colour("soft"), strokeWidth: 1.2},
          encoding: {x, y: y("return")}};
        return facet([...found, ...shading(names)], "arm", names, across, 250, [
          ...shades(), band("return_low", "return_high", 0.2), band("seed_min", "seed_max", 0.28),
          ...(found.some((row) => row.what === "reference") ? [beside] : []),
          {transform: only("rollout"), mark: {type: "line", point: {size: 22, color: colour("blue")}, color: colour("blue")}, encoding: {x, y: y("return"),
            tooltip: tip("arm", "step", "rollout", "phase", "return", "return_low", "return_high", "seed_min", "seed_max", "clear_rate", "seeds")}},
          {transform: only("stop"), mark: {type: "rule", color: colour("bad"), strokeWidth: 1.5}, encoding: {x}},
          {transform: only("stop"), mark: {type: "point", shape: "cross", size: 90, angle: 45, color: colour("bad"), filled: true},
            encoding: {x, y: {value: 4}, tooltip: tip("arm", "seed", "step", "reasons")}},
        ]);
      }, () => rows("trajectories"));
    one.chosen = page.arms.length > 16;
  }

  // Knowledge

  const FORMS = [
    ["nll_play", "needed in a think (trained wording)"], ["nll_qa", "question, wording of thinks"],
    ["nll_other", "question, other wording"], ["nll_paraphrase", "paraphrase (held out)"], ["nll_cloze", "cloze"],
    ["nll_play_false", "the matched false fact"],
  ];
  const SHAPES = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"];
  const known = (names) => rows("knowledge").filter((row) => names.includes(row.arm)).flatMap((row) =>
    FORMS.filter(([key]) => row[key] !== null && row[key] !== undefined)
      .map(([key, form]) => ({arm: row.arm, what: "nll", step: row.step, form, nll: row[key]})));

  function knowledge() {
    const parent = section("knowledge");
    parent.append(about("NLL per token of the study's facts: how surprised the weights are when they must say a fact. Low means "
      + "known; a true fact that is no likelier than its false twin is not known. Step −1 is the base."));
    const one = plot(parent, "knowledge", "NLL per token (nats) by form, log scale", ["Across: steps of the arm. Means over seeds. ", SHADED],
      (across) => {
        const names = panelled();
        const found = known(names).map((row) => ({...row, nll: Math.max(row.nll, 0.001)}));
        const forms = FORMS.map(([, form]) => form);
        const hue = (more) => ({field: "form", type: "nominal", sort: forms, title: null, ...more});
        const many = {legend: {orient: "bottom", columns: across < 600 ? 1 : 3}};
        const x = steps({scale: {domain: [-1.5, Math.max(...names.map((arm) => phasesOf[arm].length), 1) - 0.4], nice: false}});
        return facet([...found, ...shading(names)], "arm", names, across, 250, [
          ...shades(),
          {transform: [{filter: "datum.what == 'nll'"}], mark: {type: "line", strokeWidth: 1.3}, encoding: {x,
            y: quantity("nll", "NLL per token", {scale: {type: "log"}, axis: {format: "~g", tickCount: 4}}),
            color: hue({scale: {domain: forms, range: palette()}, ...many})}},
          {transform: [{filter: "datum.what == 'nll'"}], mark: {type: "point", size: 18, filled: true}, encoding: {x,
            y: quantity("nll", "NLL per token", {scale: {type: "log"}}), color: hue({scale: {domain: forms, range: palette()}, ...many}),
            shape: hue({scale: {domain: forms, range: SHAPES}, ...many}), tooltip: tip("arm", "step", "form", "nll")}},
        ]);
      }, () => known(page.arms));
    one.chosen = page.arms.length > 16;
  }

  // Recital and use

  const RECITED = [
    ["says", "recital_share", "states a true fact"], ["says", "top_recital_share", "… before `need`"],
    ["says", "needed_recited_share", "states every fact needed now"], ["uses", "right_given_recited", "right call, needed facts stated"],
    ["uses", "right_given_top_recital", "right call, true fact before `need`"], ["uses", "right_given_not_recited", "right call, needed facts not stated"],
  ];
  const recited = () => rows("sft_only").flatMap((row) => RECITED.filter(([, key]) => row[key] !== null)
    .map(([panel, key, measure]) => ({arm: row.arm, panel, measure, share: row[key]})));
  const KINDS = ["stated, right call", "stated, wrong call", "not stated, right call", "not stated, wrong call"];

  /** Shares of replies by whether the needed facts were stated and the call was right, means over seeds of the evals. */
  function used() {
    const found = [];
    for (const [policy, table] of [["before RL", "sft_only"], ["at the end", "final"]]) {
      for (const {arm, needed_recited_share: stated, right_given_recited: right, right_given_not_recited: guessed} of rows(table)) {
        if (stated === null) continue;
        const parts = [stated * (right ?? 0), stated * (1 - (right ?? 0)), (1 - stated) * (guessed ?? 0), (1 - stated) * (1 - (guessed ?? 0))];
        parts.forEach((share, at) => found.push({arm, policy, kind: KINDS[at], order: at, share}));
      }
    }
    return found;
  }

  function recital() {
    const parent = section("recital");
    parent.append(about("What a think states, and whether the call follows it. High recital with low use means that facts are "
      + "recited and not used. Eval of the SFT-only policy."));
    const axis = {format: "%", tickCount: 5};
    plot(parent, "recital", "Reciting beside using", "Means over seeds; a share of nothing is left out.", (across) => {
      const panel = (name, title, measures) => ({
        title, width: across < 700 ? across - 130 : across / 2 - 150, height: {step: 16},
        transform: [{filter: `datum.panel == '${name}'`}],
        mark: {type: "point", filled: true, size: 60}, encoding: {
          y: {field: "arm", type: "nominal", sort: page.arms, title: null, axis: {labelLimit: 110}},
          x: quantity("share", null, {axis, scale: {domain: [0, 1]}}),
          color: {field: "measure", type: "nominal", title: null, scale: {domain: measures, range: palette()}, legend: {orient: "bottom", columns: 1}},
          shape: {field: "measure", type: "nominal", title: null, scale: {domain: measures, range: SHAPES}, legend: {orient: "bottom", columns: 1}},
          tooltip: tip("arm", "measure", "share"),
        }});
      const of = (name) => RECITED.filter(([one]) => one === name).map(([, , measure]) => measure);
      return {data: {values: recited()}, spacing: 30,
        [across < 700 ? "vconcat" : "hconcat"]: [panel("says", "Reciting: share of thinks", of("says")), panel("uses", "Using: share of replies", of("uses"))],
        resolve: {scale: {color: "independent", shape: "independent"}}};
    }, recited);
    plot(parent, "recited-not-used", "Recited and used, recited and not used",
      "Replies by whether every needed fact was stated and whether the call was the advised one: products of the means over seeds "
      + "in tables sft_only and final.", (across) => ({
        data: {values: used()}, facet: {field: "policy", type: "nominal", sort: ["before RL", "at the end"], title: null},
        columns: Math.min(2, columns(across, 330)),
        spec: {width: Math.floor(across / Math.min(2, columns(across, 330))) - 135, height: {step: 16},
          mark: {type: "bar", stroke: colour("paper")}, encoding: {
            y: {field: "arm", type: "nominal", sort: page.arms, title: null, axis: {labelLimit: 110}},
            x: quantity("share", "share of replies", {axis, scale: {domain: [0, 1]}, stack: "zero"}),
            color: {field: "kind", type: "nominal", title: null, sort: KINDS, legend: {orient: "bottom", columns: across < 600 ? 1 : 4},
              scale: {domain: KINDS, range: ["green", "red", "sky", "line"].map(colour)}},
            order: {field: "order"}, tooltip: tip("arm", "policy", "kind", "share"),
          }},
      }), used);
  }

  // Measures over steps, one line a seed

  /** Values of metrics rows (and of memory, from run.json) of the chosen arms: one row a measure, arm, seed and step. */
  function overSteps(measures, names) {
    return measures.flatMap(([kind, key, title]) => (kind === "run" ? memory() : metrics(kind))
      .filter((row) => names.includes(row.arm) && row[key] !== null && row[key] !== undefined)
      .map((row) => ({measure: title, arm: row.arm, seed: row.seed, step: row.step, value: row[key]})));
  }
  const memory = () => data.nodes.filter((node) => node.stage === "step" && node.rss).map((node) => {
    const [, arm, seed, step] = node.label.split(".");
    return {arm, seed: Number(seed), step: Number(step), rss: node.rss};
  });

  const GUARDS = [
    ["rollout", "calls_per_episode", "replies an episode"], ["rollout", "think_tokens", "words a think"],
    ["rollout", "tool_call_ending_rate", "replies that end in a call"], ["rollout", "text_end_share", "text endings"],
    ["rollout", "loop_share", "loops"], ["rollout", "repetition_share", "repetitions in a think"],
    ["rollout", "noop_share", "acts without effect"], ["rollout", "dead_share", "traps"], ["rollout", "invalid_share", "invalid calls"],
  ];
  const HEALTH = [
    ["train", "loss", "loss"], ["train", "grad_norm", "gradient norm"], ["train", "logprob_abs_diff", "|log-prob| engine − trainer"],
    ["train", "clip_fraction", "clipped share"], ["rollout", "silent_group_share", "silent groups"],
    ["rollout", "sampled_nll", "NLL of sampled tokens"], ["run", "rss", "memory of the process, MiB"],
  ];

  function curves(id, name, title, caption, measures) {
    const parent = section(id);
    const titles = measures.map(([, , one]) => one);
    chooser(parent);
    const one = plot(parent, name, title, caption, (across) => {
      const names = chosen();
      const found = overSteps(measures, names);
      const told = titles.filter((measure) => found.some((row) => row.measure === measure));
      const many = {legend: {orient: "bottom", columns: across < 600 ? 2 : 4}};
      const x = steps(), y = quantity("value", null, {axis: {labelExpr: SMALL, tickCount: 4}, scale: {zero: false}});
      const hue = {field: "arm", type: "nominal", sort: names, title: null, scale: {domain: names, range: palette()}, ...many};
      return facet(found, "measure", told, across, 260, [{
        mark: {type: "line", strokeWidth: 1.4, opacity: 0.85, point: {size: 14}}, encoding: {x, y, color: hue, detail: {field: "seed"},
          strokeDash: {field: "arm", type: "nominal", sort: names, title: null, scale: {domain: names, range: DASHES}, ...many},
          tooltip: tip("measure", "arm", "seed", "step", "value")}}], {scale: {y: "independent"}});
    }, () => overSteps(measures, page.arms));
    one.chosen = true;
  }

  // Cost

  const CATEGORIES = ["play", "training", "evals", "knowledge", "rows", "report", "overhead"];
  const spent = () => rows("costs").flatMap((row) => CATEGORIES.filter((category) => row[`${category}_s`])
    .map((category) => ({stage: row.stage, category, cpu_seconds: row[`${category}_s`]})));

  function cost() {
    plot(section("cost"), "cost", "CPU seconds by stage", "Of the runs that made these results.", (across) => ({
      data: {values: spent()}, width: across - 110, height: {step: 22}, mark: {type: "bar", stroke: colour("paper")}, encoding: {
        y: {field: "stage", type: "nominal", sort: "-x", title: null}, x: quantity("cpu_seconds", "CPU seconds", {stack: "zero", axis: {tickCount: 8}}),
        color: {field: "category", type: "nominal", title: null, sort: CATEGORIES, legend: {orient: "bottom", columns: across < 600 ? 3 : 7},
          scale: {domain: CATEGORIES, range: [...palette(), colour("line")]}},
        tooltip: tip("stage", "category", "cpu_seconds")}}), spent);
  }

  forest();
  trajectories();
  knowledge();
  recital();
  curves("behaviour", "behaviour", "Behaviour of the RL rollouts", "Across: steps of the arm; one line a seed. Good play never trips the guard; what to look for: loops, "
    + "repetitions, text endings and invalid calls that rise, calls that no longer end a reply.", GUARDS);
  curves("health", "health", "Training", "Across: steps of the arm; one line a seed. A log-prob difference well above rounding means that engine and trainer do not "
    + "compute the same policy; silent groups teach nothing.", HEALTH);
  cost();

  return {all, draw};
})();
