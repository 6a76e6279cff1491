// How long a question was on the screen, and for how much of that somebody was there: the page visible and in focus, and
// something moved within the last half minute. Nothing of it is ever shown.

const STILL = 30_000;

let last = performance.now();
for (const event of ["pointermove", "pointerdown", "keydown", "scroll", "touchstart"]) {
  addEventListener(event, () => (last = performance.now()), { passive: true, capture: true });
}

/** Whether somebody was here lately. */
export const here = () => document.visibilityState === "visible" && performance.now() - last < 10 * STILL;

export class Clock {
  constructor() {
    this.start();
    setInterval(() => this.tick(), 1_000);
  }

  /** Begin with a question; one that was here before goes on from where it was. */
  start({ active = 0, wall = 0 } = {}) {
    this.active = active;
    this.wall = wall;
    this.seen = performance.now();
    last = this.seen;
  }

  tick() {
    const now = performance.now();
    const passed = now - this.seen;
    this.seen = now;
    this.wall += passed;
    const attentive = document.visibilityState === "visible" && document.hasFocus() && now - last < STILL;
    if (attentive) this.active += passed;
  }

  read() {
    this.tick();
    return { active: Math.round(this.active), wall: Math.round(this.wall) };
  }
}
