// One question about one run, asked again when the run has changed, and no oftener than the server can
// well answer it.

import { ask } from "../api.js";

const LEAST_MS = 1000;
const REST = 10; // a server that reads for a second is asked again after ten

export class Asking {
  // heard: called after every answer; `fault` is the error that came in place of the last one. share:
  // how many such questions one page has at once.
  constructor(what, heard, share = () => 1) {
    this.what = what;
    this.heard = heard;
    this.share = share;
    this.answer = null;
    this.fault = null;
    this.rests = 0;
  }

  // asked: the question; another one is asked at once. state: of the run, as the server tells it with
  // every change, and with the answer that is of it; undefined where it is not known.
  want(asked, state) {
    const other = Object.keys(asked).some((name) => asked[name] !== this.asked?.[name]);
    this.state = state;
    if (other) [this.asked, this.told] = [asked, undefined];
    if (state === undefined || state === this.told || this.busy) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.now(), other ? 0 : Math.max(this.rests - performance.now(), 0));
  }

  async now() {
    const { asked, state } = this;
    this.busy = true;
    const began = performance.now();
    try {
      this.answer = await ask(this.what, asked);
      this.fault = null;
    } catch (error) {
      this.fault = error;
    }
    this.busy = false;
    const ended = performance.now();
    this.rests = ended + Math.max(LEAST_MS, this.share() * REST * (ended - began));
    if (this.left) return;
    // A fault holds until the run changes, an answer that another question overtook for nothing.
    if (asked === this.asked) this.told = this.fault ? state : this.answer.state;
    this.heard();
    this.want(this.asked, this.state);
  }

  leave() {
    this.left = true;
    clearTimeout(this.timer);
  }
}
