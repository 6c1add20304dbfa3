/* Reports from a device, in plain JavaScript: one file, no dependency, browsers and Node.
 *
 *   const survey = await beamLdp.open(releaseJson, ["never", "sometimes", "often"]);
 *   const envelope = await survey.answer("often");      // the bytes to send; "often" stays here
 *
 * Keep the bytes and send the same ones again if you do not know whether they arrived; call
 * `answer` once per release and person. The format and the laws: docs/wire-format.md.
 */
"use strict";

const beamLdp = (() => {
  const WORDS = 1n << 64n; // values of a random word
  const LOW = WORDS - 1n;
  const MAGIC = [0x89, 0x4c, 0x44, 0x50];
  const FORMAT_VERSION = 2;
  const TERMS_VERSION = 2;
  const IDENTITY_VERSION = 2;
  const OVERHEAD = 48; // bytes of an envelope beside its reports
  const MAX_LOCAL_EPSILON = 8; // beyond it, a report by itself tells the value almost surely
  const MAX_ENVELOPE_BYTES = 1 << 24;

  class TermsError extends Error {}

  function must(condition, message) {
    if (!condition) throw new TermsError(message);
  }

  // Exact arithmetic ---------------------------------------------------------------------------

  /** A finite double > 0 as [numerator, denominator]. */
  function fraction(number) {
    const bits = new DataView(new ArrayBuffer(8));
    bits.setFloat64(0, number);
    const word = bits.getBigUint64(0);
    const exponent = Number(word >> 52n) - 1075;
    const mantissa = (word & ((1n << 52n) - 1n)) | (1n << 52n);
    return exponent >= 0 ? [mantissa << BigInt(exponent), 1n] : [mantissa, 1n << BigInt(-exponent)];
  }

  /** A fraction just below exp(x), however exp rounds. */
  function expLower(x) {
    const [a, b] = fraction(Math.exp(x));
    return [a * ((1n << 51n) - 1n), b << 51n];
  }

  function bitLength(number) {
    return number === 0n ? 0 : number.toString(2).length;
  }

  function isPowerOfTwo(number) {
    return (number & (number - 1n)) === 0n;
  }

  /** Words for which the report is one of `favoured` among `symbols` symbols. */
  function twoLevelThreshold(symbols, favoured, localEpsilon) {
    const v = BigInt(symbols), s = BigInt(favoured);
    const [a, b] = expLower(localEpsilon); // r = a / b
    const above = s * (WORDS * (a - b) - v * (a + b));
    if (above <= 0n) return 0n;
    const most = above / (v * b + s * (a - b));
    const step = isPowerOfTwo(v) && isPowerOfTwo(s) ? v : s * (v & -v); // v & -v = gcd(v, 2^64)
    return most - (most % step);
  }

  /** Words for which a bit is one: of the value held, and of any other. */
  function unaryThresholds(localEpsilon, optimized) {
    const epsilon = Math.min(localEpsilon, 60);
    if (optimized) {
      const [a, b] = expLower(epsilon);
      return { own: 1n << 63n, other: (WORDS * b + a + b - 1n) / (a + b) }; // rounded up
    }
    const [a, b] = expLower(epsilon / 2);
    const own = (WORDS * a) / (a + b);
    return { own, other: WORDS - own };
  }

  // Mechanisms: num values -> law; one value and fresh words -> one report -----------------------

  const whole = (x, least, most) => Number.isInteger(x) && x >= least && x <= most;

  /** One symbol per report, drawn from one word. */
  function symbolMechanism(symbols, favoured, localEpsilon, favouredSymbol) {
    const threshold = twoLevelThreshold(symbols, favoured, localEpsilon);
    must(threshold > 0n, "local_epsilon is beyond the resolution of 64-bit words");
    const v = BigInt(symbols);
    return {
      symbols,
      law: { threshold },
      bits: Math.max(1, bitLength(v - 1n)),
      fromWord(value, word) {
        const product = word * v;
        const high = product >> 64n;
        return Number((product & LOW) < threshold ? favouredSymbol(BigInt(value), high) : high);
      },
      randomize(value) {
        return this.fromWord(value, randomWords(1)[0]);
      },
      pack: (report) => packSymbol(report, Math.max(1, bitLength(v - 1n))),
    };
  }

  const mechanisms = {
    KRandomizedResponse({ domain_size: k, local_epsilon: epsilon }) {
      return symbolMechanism(k, 1, epsilon, (value) => value);
    },

    HadamardResponse({ domain_size: k, local_epsilon: epsilon, num_blocks: count }) {
      must(whole(count, 1, 2 * k) && isPowerOfTwo(BigInt(count)), "num_blocks is no power of two");
      const blocks = BigInt(count);
      const size = 1n << BigInt(bitLength(BigInt(Math.ceil(k / count)))); // of a block
      return symbolMechanism(Number(blocks * size), Number(size / 2n), epsilon, (value, high) => {
        const block = value % blocks;
        const column = value / blocks + 1n;
        let row = high % size;
        if (oddParity(row & column)) row ^= column & -column; // its lowest bit makes parity even
        return block * size + row;
      });
    },

    UnaryEncoding({ domain_size: k, local_epsilon: epsilon, optimized }) {
      must(typeof optimized === "boolean", "optimized is not true or false");
      const law = unaryThresholds(epsilon, optimized);
      return {
        law,
        bits: k,
        fromWord: (held, word) => (word < (held ? law.own : law.other) ? 1 : 0),
        randomize(value) {
          return Array.from(randomWords(k), (word, i) => this.fromWord(i === value, word));
        },
        pack: packBits,
      };
    },
  };

  function oddParity(number) {
    let odd = false;
    for (; number; number &= number - 1n) odd = !odd;
    return odd;
  }

  /** Uniform 64-bit words from the system's cryptographic generator. */
  function randomWords(count) {
    const words = new BigUint64Array(count);
    for (let start = 0; start < count; start += 8192) {
      crypto.getRandomValues(words.subarray(start, start + 8192)); // at most 64 KiB a call
    }
    return words;
  }

  // Packing ------------------------------------------------------------------------------------

  /** A symbol as `bits` bits, most significant first, in whole bytes. */
  function packSymbol(symbol, bits) {
    const out = new Uint8Array(Math.ceil(bits / 8));
    for (let i = bits - 1, at = 0; i >= 0; i--, at++) {
      if (Math.floor(symbol / 2 ** i) % 2) out[at >> 3] |= 0x80 >> (at & 7);
    }
    return out;
  }

  /** A row of bits in whole bytes, filled from their least significant bit on. */
  function packBits(bits) {
    const out = new Uint8Array(Math.ceil(bits.length / 8));
    bits.forEach((bit, at) => { if (bit) out[at >> 3] |= 1 << (at & 7); });
    return out;
  }

  // The envelope -------------------------------------------------------------------------------

  const utf8 = (text) => new TextEncoder().encode(text);
  const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

  async function sha256(bytes) {
    return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  }

  async function digest(bytes) {
    return (await sha256(bytes)).slice(0, 16);
  }

  function join(...parts) {
    const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
      out.set(part, at);
      at += part.length;
    }
    return out;
  }

  /** A number in so many bytes, the most significant first. */
  function bigEndian(number, length) {
    return Uint8Array.from({ length }, (_, i) => Math.floor(number / 256 ** (length - 1 - i)) % 256);
  }

  /** CRC-32, as in zlib and PNG. */
  function crc32(bytes) {
    let sum = 0xffffffff;
    for (const byte of bytes) sum = CRC_TABLE[(sum ^ byte) & 0xff] ^ (sum >>> 8);
    return (sum ^ 0xffffffff) >>> 0;
  }

  const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
    let sum = byte;
    for (let i = 0; i < 8; i++) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
    return sum;
  });

  /** The digest of a list of byte strings: every one behind its length. */
  async function digestOf(...parts) {
    const prefixed = parts.flatMap((bytes) => [bigEndian(bytes.length, 8).reverse(), bytes]);
    return digest(join(...prefixed));
  }

  /** The digest of the public list, `other` last. */
  const domainDigest = (values, other) => digestOf(...[...values, other].map(utf8));

  // The identity of a release --------------------------------------------------------------------

  /** Canonical JSON of an identity, as `release.json` holds it: keys sorted, nothing between. */
  function identityText(identity) {
    const sorted = Object.keys(identity).sort().map((name) => [name, identity[name]]);
    return JSON.stringify(Object.fromEntries(sorted));
  }

  /** 32 bytes that identify the release. */
  const identityDigest = (identity) =>
    sha256(join(utf8("beam-ldp release identity\n"), utf8(identityText(identity))));

  /** 16 bytes, hexadecimal, that tell secret keys apart, and nothing about them. */
  async function keyCommitment(key) {
    const how = { name: "HMAC", hash: "SHA-256" };
    const imported = await crypto.subtle.importKey("raw", key, how, false, ["sign"]);
    const signed = await crypto.subtle.sign("HMAC", imported, utf8("beam-ldp key commitment"));
    return toHex(new Uint8Array(signed).slice(0, 16));
  }

  /** A release as this device takes part in it. Made by `open`. */
  class Survey {
    constructor(terms, config, mechanism, values, other, identified) {
      Object.assign(this, { terms, config, mechanism, values, other });
      this.localEpsilon = config.local_epsilon;
      this.prefix = join(
        Uint8Array.from([...MAGIC, FORMAT_VERSION, terms.simulated ? 1 : 0, 0, 0]), identified);
    }

    /** Index of a value; the last one, `other`, for everything outside the list. */
    indexOf(value) {
      const found = this.values.indexOf(value);
      return found < 0 ? this.values.length : found;
    }

    /** A fresh report of the value with this index: it may leave the device. */
    randomize(index) {
      must(!this.terms.simulated, "a simulation: this is no release that people take part in");
      must(whole(index, 0, this.config.domain_size - 1), "index lies outside the list");
      return this.mechanism.randomize(index);
    }

    /** The envelope of some reports, as bytes. */
    async envelope(reports, id = crypto.getRandomValues(new Uint8Array(16))) {
      must(id.length === 16, "an id has 16 bytes");
      const most = this.terms.identity.reports_per_envelope;
      must(reports.length >= 1 && reports.length <= most, `an envelope holds 1 to ${most} reports`);
      const packed = join(...reports.map((report) => this.mechanism.pack(report)));
      must(packed.length + OVERHEAD <= MAX_ENVELOPE_BYTES, "too many reports for one envelope");
      const content = join(this.prefix, id, bigEndian(reports.length, 4), packed);
      return join(content, bigEndian(crc32(content), 4));
    }

    /** Randomize a value and put its report into an envelope of its own. */
    async answer(value) {
      return this.envelope([this.randomize(this.indexOf(value))]);
    }
  }

  /** Take part in a release.
   *
   * terms: what `release.json` holds; values: the public list; options: `other`, the name of the
   * rest, `maxLocalEpsilon`, above which this device takes no part, and for a release of groups
   * `groups`, the public list of them, and `group`, the one that this device is in.
   * Throws TermsError if anything does not fit together.
   */
  async function open(terms, values, options = {}) {
    const { other = "other", maxLocalEpsilon = MAX_LOCAL_EPSILON, groups, group } = options;
    must(terms.terms_version === TERMS_VERSION, "unknown version of the terms");
    must(terms.format_version === FORMAT_VERSION, "unknown version of the format");
    const identity = terms.identity;
    must(identity && identity.identity_version === IDENTITY_VERSION, "unknown kind of identity");
    must(identity.release_id && typeof identity.release_id === "string", "the release has no name");
    must(terms.release_id === identity.release_id, "release_id is another one");
    must(new Set([...values, other]).size === values.length + 1, "the list repeats a value");
    must(identity.mechanism === toHex(await digest(utf8(terms.mechanism))),
      "the mechanism is another one");
    const config = JSON.parse(terms.mechanism);
    must(!Object.hasOwn(config, "shares"),
      "shares protect nobody unless whoever collects is trusted: this client sends none");
    must(config.version === 1 && Object.hasOwn(mechanisms, config.mechanism),
      `unknown mechanism: this client knows ${Object.keys(mechanisms).join(", ")}`);
    must(identity.values === toHex(await domainDigest(values, other)), "the list is another one");
    must(terms.identity_digest === toHex(await identityDigest(identity)),
      "identity_digest is another one");
    must(identity.key === "" && identity.group === "", "a release of somebody else");
    let named = "";
    if (identity.groups !== "") {
      must(Array.isArray(groups), "a release of groups: the list of groups is missing");
      const listed = await domainDigest(groups, "other");
      const both = toHex(await digestOf(utf8(terms.group_by), listed));
      must(both === identity.groups && toHex(listed) === terms.groups_digest,
        "the list of groups is another one");
      named = groups.includes(group) ? group : "other";
    } else {
      must(groups === undefined && group === undefined, "the release has no groups");
    }
    const identified = (await identityDigest({ ...identity, group: named })).slice(0, 16);
    must(config.domain_size === values.length + 1, "the list has another size");
    const epsilon = config.local_epsilon;
    must(Number.isFinite(epsilon) && epsilon > 0, "local_epsilon is no number > 0");
    must(epsilon <= Math.min(maxLocalEpsilon, 700), `local_epsilon ${epsilon} is above the limit`);
    const mechanism = mechanisms[config.mechanism](config);
    must(terms.bits_per_report === mechanism.bits, "bits_per_report is another one");
    return new Survey(terms, config, mechanism, [...values], other, identified);
  }

  return {
    open, TermsError, Survey, toHex, twoLevelThreshold, unaryThresholds, identityText, identityDigest,
    keyCommitment, crc32,
  };
})();

if (typeof module !== "undefined") module.exports = beamLdp;
