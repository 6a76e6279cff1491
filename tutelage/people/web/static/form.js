// The answer as it stands in the form, and the form as an answer says.

const SEPARATOR = " — ";

export class Form {
  /** @param changed called after every change that the rater makes */
  constructor(element, changed) {
    this.element = element;
    this.flags = element.querySelector("#flags");
    this.reasonPanel = element.querySelector("#reason-panel");
    this.reason = element.querySelector("#reason");
    this.skipPanel = element.querySelector("#skip-panel");
    this.openers = new Map([
      [this.flags, element.querySelector("#open-flags")],
      [this.reasonPanel, element.querySelector("#open-reason")],
    ]);
    for (const [panel, opener] of this.openers) {
      opener.addEventListener("click", () => this.toggle(panel));
    }
    element.addEventListener("input", () => {
      this.settle();
      changed();
    });
  }

  verdict() {
    return this.element.querySelector('[name="verdict"]:checked')?.value ?? "";
  }

  rows() {
    return [...this.element.querySelectorAll("[data-rank]")];
  }

  read() {
    const [choice, strength] = this.verdict().split("-");
    const checked = (scope, name) =>
      [...scope.querySelectorAll(`[name="${name}"]:checked`)].map((input) => input.value);
    const criteria = {};
    for (const row of this.element.querySelectorAll("[data-criterion]")) {
      const side = row.querySelector("input:checked");
      if (side) criteria[row.dataset.criterion] = side.value;
    }
    const why = choice === "skip" ? checked(this.element, "skip-reason") : [];
    const ranks = this.rows().map((row) => Number(row.querySelector("input:checked")?.value ?? 0));
    return {
      choice: choice ?? "",
      strength: Number(strength ?? 0),
      ranking: choice === "ranked" ? ranks : [],
      criteria,
      flags: checked(this.element, "flag"),
      reason: [...why, this.reason.value.trim()].filter(Boolean).join(SEPARATOR),
    };
  }

  /** What is still missing, as a sentence; nothing if the answer can be sent. */
  missing() {
    const answer = this.read();
    if (!answer.choice) {
      return this.rows().length
        ? "Give every response a rank first, or say that all are bad."
        : "Choose a verdict first: the digits go from A to B.";
    }
    if (answer.choice === "skip" && !answer.reason && !answer.flags.length) {
      return "Say why it cannot be judged: choose a reason above, or write one.";
    }
    return "";
  }

  fill(answer) {
    this.element.reset();
    this.check("verdict", `${answer.choice}-${answer.strength}`);
    for (const row of this.element.querySelectorAll("[data-criterion]")) {
      const side = answer.criteria?.[row.dataset.criterion];
      for (const input of row.querySelectorAll("input")) input.checked = input.value === side;
    }
    for (const flag of answer.flags ?? []) this.check("flag", flag);
    this.rows().forEach((row, place) => {
      const rank = String(answer.ranking?.[place] ?? "");
      for (const input of row.querySelectorAll("input")) input.checked = input.value === rank;
    });
    this.fillReason(answer);
    this.show(this.flags, Boolean(answer.flags?.length));
    this.show(this.reasonPanel, Boolean(this.reason.value));
    this.settle();
  }

  fillReason(answer) {
    const parts = (answer.reason ?? "").split(SEPARATOR);
    const known = answer.choice === "skip" && this.check("skip-reason", parts[0]);
    this.reason.value = known ? parts.slice(1).join(SEPARATOR) : (answer.reason ?? "");
  }

  clear() {
    this.fill({ choice: "", strength: 0 });
  }

  check(name, value) {
    const inputs = [...this.element.querySelectorAll(`[name="${name}"]`)];
    const input = inputs.find((each) => each.value === value);
    if (input) input.checked = true;
    return Boolean(input);
  }

  /** Show what belongs to the present state: the reasons for skipping, the chosen card, the order of ranks. */
  settle() {
    this.settleRanks();
    const verdict = this.verdict();
    this.skipPanel.hidden = !verdict.startsWith("skip");
    const cards = this.element.querySelectorAll(".response");
    cards.forEach((card, place) => {
      card.classList.toggle("better", verdict.startsWith(["left", "right"][place] ?? "none"));
    });
    this.element.querySelector("#said").textContent = this.saidInWords();
    this.element.querySelector("#hint").hidden = true;
  }

  saidInWords() {
    const point = this.element.querySelector(".point input:checked + .face .words");
    return point?.textContent ?? "";
  }

  settleRanks() {
    const rows = this.rows();
    if (!rows.length) return;
    const ranks = rows.map((row) => Number(row.querySelector("input:checked")?.value ?? 0));
    const ranked = this.element.querySelector("#ranked");
    const elsewhere = this.verdict() && !this.verdict().startsWith("ranked");
    if (ranks.every(Boolean) && !elsewhere) ranked.checked = true;
    const order = this.element.querySelector("#order");
    order.textContent = ranks.some(Boolean)
      ? inOrder(ranks)
      : "Give each response a rank; equal ranks are ties.";
  }

  toggle(panel) {
    this.show(panel, panel.hidden);
    if (!panel.hidden) this.enter(panel);
  }

  show(panel, visible) {
    panel.hidden = !visible;
    this.openers.get(panel)?.setAttribute("aria-expanded", String(visible));
  }

  /** Open a panel and put the focus into it. */
  enter(panel) {
    this.show(panel, true);
    const field = panel.querySelector("input:checked, input, textarea");
    field?.focus({ focusVisible: true });
    panel.scrollIntoView({ block: "nearest" });
  }
}

/** Ranks by place as "B > A = C", with what has none yet at the end. */
export function inOrder(ranks) {
  const letters = [...ranks.keys()].map((place) => "ABCDEF"[place]);
  const steps = [...new Set(ranks.filter(Boolean))].sort((one, other) => one - other);
  const said = steps.map((step) => letters.filter((_, place) => ranks[place] === step).join(" = ")).join("  >  ");
  const open = letters.filter((_, place) => !ranks[place]);
  return open.length ? `${said}   (open: ${open.join(", ")})` : said;
}
