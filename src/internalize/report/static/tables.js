// Summary, the arms' table, all tables, and the evidence of a cell.
"use strict";

const tables = (() => {
  const {make, data, rows, section, about, number, share, bytes, list, NOISE} = page;
  const BY_STEP = ["trajectories", "knowledge"];

  /** How `internalize explain` calls a row. */
  const rowName = (table, row) => (BY_STEP.includes(table) ? `${row.arm}:${row.step}` : (row.arm ?? row.stage));

  /** A cell that can be asked. */
  function cell(table, row, column, text, more = {}, ...below) {
    return make("td", {"data-table": table, "data-row": row.at, "data-column": column, tabindex: 0, role: "button", ...more},
      text, ...below);
  }

  function estimate(table, row, key, digits = 2) {
    const sign = key.includes("nll") ? false : true;
    const noise = row[`${key}_noise`] === true;
    if (row[key] === null || row[key] === undefined) return make("td", {}, "-");
    const low = row[`${key}_low`], high = row[`${key}_high`];
    const range = low === null || low === undefined ? [] : [make("span", {class: "range"}, `[${number(low, digits, sign)}, ${number(high, digits, sign)}]`)];
    return cell(table, row, key, number(row[key], digits, sign), {class: noise ? "noise" : null}, ...range);
  }

  function clears(table, row, source) {
    const count = row[`${source}_clears`], all = row[`${source}_episodes`];
    if (count === null || !all) return make("td", {}, "-");
    return cell(table, row, `${source}_clears`, `${count}/${all} (${share(count / all)})`, {},
      make("span", {class: "range"}, `[${share(row[`${source}_clears_low`])}, ${share(row[`${source}_clears_high`])}]`));
  }

  function versus(table, row, key) {
    const same = row[key.replace("diff", "same")];
    if (row.arm === data.study.reference) return make("td", {class: "soft"}, "reference");
    return same === true ? cell(table, row, key.replace("diff", "same"), "the same policy", {class: "soft"}) : estimate(table, row, key);
  }

  const plain = (table, row, column, show) =>
    row[column] === null || row[column] === undefined ? make("td", {}, "-") : cell(table, row, column, show(row[column]));

  function table(heads, body, attributes = {}) {
    // a heading stands as its column does: words to the left, numbers to the right
    const words = (at) => ["text", "words"].some((name) => body[0]?.children[at]?.classList.contains(name));
    return make("div", {class: "wide"}, make("table", attributes, make("thead", {}, make("tr", {}, heads.map((head, at) => make("th", {class: words(at) ? "text" : null}, head)))),
      make("tbody", {}, body)));
  }

  function summary() {
    const parent = section("summary");
    const before = rows("sft_only"), end = rows("final");
    const names = (found) => (found.length ? found.map((row) => `\`${row.arm}\``).join(", ") : "no arm");
    const stopped = data.study.arms.flatMap((arm) => arm.stopped.map((stop) => `\`${arm.name}\` seed ${stop.seed} at step ${stop.step} (${stop.reasons.join(", ")})`));
    const cpu = rows("costs").reduce((sum, row) => sum + row.cpu_s, 0);
    const wall = data.critical.reduce((sum, at) => sum + (data.nodes[at].wall ?? 0), 0);
    const compared = before.filter((row) => row.eval_diff_noise !== null);
    parent.append(list([
      ...data.study.facts,
      `SFT alone, in the eval: ${NOISE} of \`${data.study.reference}\`: ${names(compared.filter((row) => row.eval_diff_noise))}; `
        + `beyond it: ${names(compared.filter((row) => row.eval_diff_noise === false))}. ${compared.length} comparisons at 95 %: expect ${(0.05 * compared.length).toFixed(1)} beyond it by chance.`,
      `RL improved beyond the interval: ${names(end.filter((row) => row.rl_gain_noise === false && row.rl_gain > 0))}.`,
      stopped.length ? `Stopped by the collapse guard: ${stopped.join("; ")}.` : "No arm was stopped by the collapse guard.",
      `Cost: ${page.seconds(cpu)} of CPU; the longest way through the workflow took ${page.seconds(wall)}.`,
      `Archive: ${data.manifest.state}${data.manifest.files ? `, ${data.manifest.files} files, ${bytes(data.manifest.bytes)}` : ""}.`,
    ]), about("Every number of a table can be asked: click it, or `internalize explain TABLE ROW COLUMN`.".replaceAll("`", "")));
  }

  function arms() {
    const end = Object.fromEntries(rows("final").map((row) => [row.arm, row]));
    const reference = data.study.reference;
    const heads = ["arm", "SFT-only: return", `difference to ${reference}`, "clears", "first RL rollout", "end: return", `difference to ${reference}`,
      "clears", "gain since SFT-only", "recites a fact", "right call, facts stated", "NLL, needed facts", "status"];
    const body = rows("sft_only").map((row) => {
      const last = end[row.arm];
      return make("tr", {}, make("td", {title: row.policy}, make("b", {}, row.arm), make("span", {class: "range"}, `${row.policy}; ${row.seeds} seeds`)),
        estimate("sft_only", row, "eval_return"), versus("sft_only", row, "eval_diff"), clears("sft_only", row, "eval"), estimate("sft_only", row, "rollout_return"),
        estimate("final", last, "eval_return"), versus("final", last, "eval_diff"), clears("final", last, "eval"), estimate("final", last, "rl_gain"),
        plain("sft_only", row, "recital_share", share), plain("sft_only", row, "right_given_recited", share), plain("sft_only", row, "nll_play", number),
        cell("sft_only", row, "status", row.status, {class: row.stopped ? "bad" : null}, row.stopped ? make("span", {class: "range"}, "stopped") : null));
    });
    section("arms").append(about(`Return: 1 for a cleared level, else up to 0.4 for progress, less costs. SFT-only: the policy before any RL, in the eval on `
      + `levels that all arms share. Differences are paired by seed with ${reference}; ${NOISE} means that the interval covers 0.`), table(heads, body, {id: "arms-table"}));
  }

  // All tables

  function everything() {
    const parent = section("tables");
    const place = make("div");
    const names = Object.keys(data.tables);
    const pick = make("select", {"aria-label": "table", onchange: () => show(pick.value)}, names.map((name) => make("option", {}, name)));
    const find = make("input", {type: "search", placeholder: "columns that contain …", oninput: () => show(pick.value)});
    let sorted = null;
    function show(name) {
      const {columns} = data.tables[name];
      const kept = columns.filter((column, at) => at === 0 || column === "step" || column.includes(find.value));
      let found = [...rows(name)];
      if (sorted && kept.includes(sorted.column)) {
        const order = (x) => (x === null ? -Infinity : x);
        found.sort((a, b) => (order(a[sorted.column]) > order(b[sorted.column]) ? sorted.way : -sorted.way));
      }
      const heads = kept.map((column) => make("button", {type: "button", onclick: () => {
        sorted = {column, way: sorted?.column === column ? -sorted.way : 1};
        show(name);
      }}, column));
      const text = (x) => (typeof x === "number" ? String(x) : x === null ? "" : String(x));
      place.replaceChildren(table(heads, found.map((row) => make("tr", {}, kept.map((column) => cell(name, row, column, text(row[column]), {class: typeof row[column] === "string" ? "text" : null}))))),
        make("button", {type: "button", onclick: () => page.save(`${name}.csv`, "text/csv", page.csv(columns, rows(name)))}, "CSV"));
    }
    parent.append(about("The tables as in results/, every cell with its evidence."), make("div", {class: "picks"}, pick, find), place);
    // thousands of cells: only when somebody comes near
    new IntersectionObserver((entries, watch) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watch.disconnect();
      show(names[0]);
    }, {rootMargin: "200px"}).observe(parent);
  }

  // Evidence

  const drawer = section("evidence");
  function open(...content) {
    drawer.replaceChildren(make("button", {type: "button", class: "close", onclick: close}, "close"), ...content);
    drawer.hidden = false;
    drawer.scrollTop = 0;
  }
  function close() {
    drawer.hidden = true;
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    const asked = event.target.closest?.("td[data-column]");
    if (asked && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      evidence(asked.dataset.table, Number(asked.dataset.row), asked.dataset.column);
    }
  });
  document.addEventListener("click", (event) => {
    const asked = event.target.closest("td[data-column]");
    if (asked) evidence(asked.dataset.table, Number(asked.dataset.row), asked.dataset.column);
  });

  const who = ({arm, seed, step}) => (arm === null ? "the base" : `${arm}, seed ${seed}, step ${step}`);

  function evidence(name, at, column) {
    const told = data.tables[name], row = rows(name)[at], place = told.columns.indexOf(column);
    const printed = told.rows[at][place];
    const heading = [make("p", {class: "soft"}, `${name} / ${rowName(name, row)} / ${column}`), make("p", {class: "value"}, printed === "" ? "(empty)" : printed)];
    const ask = `internalize explain ${name} ${rowName(name, row)} ${column}`;
    if (!told.evidence) {
      const stage = data.nodes.filter((node) => node.stage === row.stage);
      open(...heading, make("p", {}, "Over the run.json of every store entry of this stage; seconds by category follow its cpu_parts_s, memory is the largest."),
        make("pre", {}, ask), table(["entry", "CPU s", "wall s", "MiB"], stage.map((node) => make("tr", {}, make("td", {}, `${node.label} (${node.entry})`),
          make("td", {}, number(node.cpu)), make("td", {}, number(node.wall)), make("td", {}, String(node.rss ?? "-"))))));
      return;
    }
    const refs = told.evidence[at][told.kinds[place]].map((one) => data.refs[one])
      .map(([node, part, step, seed, arm]) => ({node: data.nodes[node], nodeAt: node, part, step, seed, arm}));
    const key = told.keys[place];
    const measures = refs.filter(({part}) => data.metrics[part]).map((ref) => ({...ref, row: page.metrics(ref.part)
      .find((one) => one.arm === ref.arm && one.seed === ref.seed && one.step === ref.step)}));
    const episodes = refs.filter(({part}) => part.endsWith("episodes"));
    const content = [...heading, make("p", {}, `How: ${told.how[place]}.`)];
    if (measures.length) {
      const values = measures.map(({row: one}) => one?.[key]).filter((x) => typeof x === "number");
      content.push(make("h3", {}, "Metrics rows"), table(["of", "file", key], measures.map(({node, part, row: one, ...ref}) => make("tr", {},
        make("td", {}, who(ref)), make("td", {class: "text"}, `${node.entry}/metrics.jsonl (${part})`),
        make("td", {class: "measured"}, one?.[key] === undefined || one[key] === null ? "" : String(one[key]))))));
      if (values.length > 1) content.push(make("p", {class: "soft"}, `mean of these: ${(values.reduce((a, b) => a + b) / values.length).toPrecision(6)}`));
    }
    if (episodes.length) {
      content.push(make("h3", {}, "Episodes"), table(["of", "file, sha256", ""], episodes.map(({node, part, ...ref}) => {
        const source = part.replace("_episodes", "");
        const folder = source === "eval" ? `episodes/step-${ref.arm === null ? "base" : String(ref.step).padStart(4, "0")}/` : "";
        const file = `${folder}episodes.jsonl`;
        return make("tr", {}, make("td", {}, who(ref)), make("td", {class: "text"}, `${node.entry}/${file} `, make("code", {}, (node.files?.[file] ?? "").slice(0, 16))),
          make("td", {}, make("button", {type: "button", onclick: () => { close(); viewer.open(ref.arm, ref.seed, source, ref.step); }}, "look")));
      })));
    }
    const receipts = [...new Set(refs.map(({nodeAt}) => nodeAt))];
    if (receipts.length) {
      content.push(make("h3", {}, "Receipts"), ...receipts.map((one) => receipt(one)));
      const targets = receipts.map((one) => data.nodes[one].path).join(" ");
      const forget = receipts.map((one) => `internalize forget ${data.nodes[one].entry.replace("/", " ")}`).join("\n");
      content.push(make("h3", {}, "Make it again"), about("In a fresh clone the last line is enough; here, set the entries aside first."),
        make("pre", {}, `${forget}\n${data.command} ${targets}`));
    } else content.push(make("p", {class: "soft"}, "From the study file, as results/receipts/report.json holds it under spec.arms."));
    content.push(make("h3", {}, "Ask the files"), about("Reads the files above, checks their hashes, and makes the value again:"), make("pre", {class: "ask"}, ask));
    open(...content);
  }

  /** A receipt in a few lines, its parents to go on to. */
  function receipt(at) {
    const node = data.nodes[at];
    return make("dl", {class: "facts"},
      make("dt", {}, node.label), make("dd", {}, make("code", {}, node.path)),
      make("dt", {}, "hash"), make("dd", {}, make("code", {}, node.hash)),
      make("dt", {}, "entry, code"), make("dd", {}, make("code", {}, `${node.entry}, ${node.code}`), ` ${node.status}, ${bytes(node.bytes)}`),
      make("dt", {}, "run"), make("dd", {}, `${page.seconds(node.wall)}, ${number(node.cpu, 1)} CPU s, ${node.rss ?? "-"} MiB`),
      make("dt", {}, "made from"), make("dd", {}, node.parents.map((parent) =>
        make("button", {type: "button", onclick: () => open(make("h3", {}, data.nodes[parent].label), receipt(parent))}, data.nodes[parent].label))));
  }

  summary();
  arms();
  everything();
  section("reading").append(list(data.study.reading));
  return {evidence, receipt, open, table, cell};
})();
