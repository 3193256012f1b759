// One question about one run, asked again when the run has changed, and no oftener than the server can
// well answer it.

import { ask } from "../api.js";

const LEAST_MS = 1000;
const REST = 10; // a server that reads for a second is asked again after ten
const MOST_MS = 20_000;

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
    const [answer, fault] = await ask(this.what, asked).then((found) => [found, null], (error) => [this.answer, error]);
    this.busy = false;
    const ended = performance.now();
    this.rests = ended + Math.min(Math.max(LEAST_MS, this.share() * REST * (ended - began)), MOST_MS);
    if (this.left) return;
    if (asked !== this.asked) return void this.now(); // another question overtook this one
    // A fault holds until the run changes.
    [this.answer, this.fault, this.told] = [answer, fault, fault ? state : answer.state];
    this.heard();
    this.want(this.asked, this.state);
  }

  leave() {
    this.left = true;
    clearTimeout(this.timer);
  }
}
