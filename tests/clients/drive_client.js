/* Runs docs/clients/beam_ldp.js on commands from standard input (JSON), for test_javascript.py. */
"use strict";

const beamLdp = require("../../docs/clients/beam_ldp.js");

/** Words that repeat, in the place of the system's: SHA-256 of seed and counter. */
function seedWords(seed) {
  const { createHash, webcrypto } = require("node:crypto");
  let counter = 0;
  const getRandomValues = (array) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let at = 0; at < bytes.length; at += 32) {
      const block = createHash("sha256").update(`${seed} ${counter++}`).digest();
      bytes.set(block.subarray(0, bytes.length - at), at);
    }
    return array;
  };
  const value = { getRandomValues, subtle: webcrypto.subtle };
  Object.defineProperty(globalThis, "crypto", { value });
}

const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const asText = (value) => JSON.stringify(value, (_, v) => (typeof v === "bigint" ? `${v}` : v));

const commands = {
  /** Everything that a vector tells about. */
  async vector({ vector }) {
    const survey = await beamLdp.open(vector.terms, vector.values, { other: vector.other });
    const draws = vector.draws.map(({ value, held, word }) =>
      survey.mechanism.fromWord(value ?? held, BigInt(word)));
    return {
      law: survey.mechanism.law,
      draws,
      payload: vector.reports.map((report) => beamLdp.toHex(survey.mechanism.pack(report))).join(""),
      identity: beamLdp.identityText(vector.terms.identity),
      envelope: beamLdp.toHex(await survey.envelope(vector.reports, fromHex(vector.envelope_id))),
      bits: survey.mechanism.bits,
    };
  },

  /** The same of several. */
  vectors: ({ vectors }) => Promise.all(vectors.map((vector) => commands.vector({ vector }))),

  /** Canonical texts and digests of identities, and the commitment to a key. */
  async identities({ vectors, key }) {
    const found = await Promise.all(vectors.map(async ({ identity }) => ({
      text: beamLdp.identityText(identity),
      digest: beamLdp.toHex(await beamLdp.identityDigest(identity)),
    })));
    return { found, commitment: await beamLdp.keyCommitment(fromHex(key)) };
  },

  /** Checksums. */
  async checksums({ contents }) {
    return contents.map((content) => beamLdp.crc32(fromHex(content)));
  },

  /** Thresholds of many laws. */
  async thresholds({ laws }) {
    return laws.map(([symbols, favoured, epsilon]) =>
      favoured ? { threshold: beamLdp.twoLevelThreshold(symbols, favoured, epsilon) }
        : beamLdp.unaryThresholds(epsilon, symbols === 1));
  },

  /** How often each report comes; a row of bits counts as the number that they spell. */
  async count({ terms, values, index, times }) {
    const survey = await beamLdp.open(terms, values);
    const counts = {};
    for (let i = 0; i < times; i++) {
      let report = survey.randomize(index);
      if (Array.isArray(report)) report = report.reduce((sum, bit, x) => sum + bit * 2 ** x, 0);
      counts[report] = (counts[report] ?? 0) + 1;
    }
    return counts;
  },

  /** Envelopes of single answers. */
  async answers({ terms, values, given, options }) {
    const survey = await beamLdp.open(terms, values, options);
    return Promise.all(given.map(async (value) => beamLdp.toHex(await survey.answer(value))));
  },

  /** Why terms are refused. */
  async refusals({ cases }) {
    return Promise.all(cases.map(async ({ terms, values, options }) => {
      try {
        await beamLdp.open(terms, values, options);
        return "taken";
      } catch (error) {
        return error instanceof beamLdp.TermsError ? error.message : `crash: ${error}`;
      }
    }));
  },
};

(async () => {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  const command = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  if (command.seed !== undefined) seedWords(command.seed);
  process.stdout.write(asText(await commands[command.run](command)));
})();
