// tokenizer_vectors.mjs - makes tests/text/vectors: small tokenisers of every kind, and what Hugging Face's tokenizers makes of
// thousands of strings with them.
//
//   npm install tokenizers@0.23.2        (in any folder)
//   node <tree>/tools/golden/tokenizer_vectors.mjs <tree>/tests/text/vectors        (in that folder)
//
// The vocabularies are trained here, on whole lines and without a pre-tokeniser, so that they hold tokens across every border
// that a pre-tokeniser draws: a border in the wrong place gives other ids. The normalizer, pre_tokenizer, decoder and
// post_processor are those of the published models. Characters are older than Unicode 12, so that the versions of the
// libraries do not matter. Deterministic: the same files every time. Output: texts.json, one JSON per vocabulary, and one per
// kind with the first ids in full and a 32-bit FNV-1a hash of the ids of every text.
import { createRequire } from 'node:module';
import { writeFileSync, mkdirSync } from 'node:fs';
const { Tokenizer } = createRequire(process.cwd() + '/')('tokenizers');

let state = 20261121;
const random = (n) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 4294967296) * n);
};
const pick = (list) => list[random(list.length)];

// --- texts ---

const WORDS = `the of and a to in is you that it he was for on are as with his they I at be this have from or one had by word but not
what all were we when your can said there use an each which she do how their if will up other about out many then them these so some
her would make like him into time has look two more write go see number no way could people my than first water been call who oil its
now find long down day did get come made may part over new sound take only little work know place year live me back give most very
after thing our just name good sentence man think say great where help through much before line right too mean old any same tell boy
follow came want show also around form three small set put end does another well large must big even such because turn here why ask
went men read need land different home us move try kind hand picture again change off play spell air away animal house point page
letter mother answer found study still learn should America World HTTPServer getElementById snake_case camelCase x1 int32_t`.split(/\s+/);
const SCRIPTS = ['Straße Übergröße café naïve œuvre façade', 'Γειά σου Κόσμε ὈΔΥΣΣΕΎΣ', 'Привет мир Съешь ещё этих', 'שלום עולם', 'مرحبا بالعالم ٤٢ ۳', 'नमस्ते दुनिया क्षत्रिय ४२',
  'สวัสดีชาวโลก', 'გამარჯობა მსოფლიო', '안녕하세요 세계 한국어', 'こんにちは世界 カタカナ ｶﾀｶﾅ', '你好，世界。中文字符測試', 'ሰላም ልዑል', 'Ελλάδα', 'Việt Nam tiếng', 'Tiếng Việt',
  'ＦＵＬＬ　ｗｉｄｔｈ　１２３', '𝐌𝐚𝐭𝐡 𝒞𝒶𝓁', '𐐀𐐨𐐁 deseret', 'ǅ ǈ ǋ ʰʲˢ ªº', 'ﬁ ﬂ ﬀ ™ ℃ Ⅷ ⅳ ½ ² ³ ①', 'İstanbul ıI ſtart Kelvin', 'ßẞ'].map((s) => s.split(' '));
const EMOJI = ['😀', '👩‍👩‍👧‍👦', '🏳️‍🌈', '👍🏽', '🇩🇪🇫🇷', '❤️', '☃', '✈️', '🤷‍♂️', '1️⃣'];
const MARKS = ['é', 'ǭ̀', 'a͈̽', '\u0301\u0301', 'क्', '\u0316\u0301x', 'ö̲', '\u20dd', 'Å', '각'];
const SPACES = [' ', '  ', '   ', '\n', '\n\n', '\r\n', '\t', ' \n ', '\t\t', '        ', '\u00a0', '\u3000', '\u2028', '\u0085', '\u180e', '\u200b', '\u2003', ' \n\n  ', '\r', '\v', '\f', '\ufeff'];
const ENDINGS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re", "’s", "'ſ", "''", "'x", "n't", "'dog"];
const PUNCTUATION = ['.', ',', '!', '?', ';', ':', '...', '!!!', '()', '[]', '{}', '<>', '/', '//', '\\', '|', '@', '#', '$', '%', '^', '&', '*', '-', '--', '_', '+', '=', '~', '`', '"', '“', '”', '—', '…', '«', '»', '、', '。', '！', '€', '£', '¥', '°', '§', '://', '->', '=>', '!=', '();\n', '*/', '/**\n', '=====', '.\n', '|-|'];
const ADDED = ['<|im_start|>', '<|im_end|>', '<|endoftext|>', '<think>', '</think>', '<s>', '</s>', '<0x41>', '<|im_', 'end|>', '<thin'];
const CONTROLS = ['\u0000', '\u0001', '\u001f', '\u007f', '\u009f', '\ufffd', '\u{10ffff}', '\ue000', '▁', '▁▁', 'Ġ'];
const CODE = ['for (int i = 0; i < 10; i++) {\n\treturn a[i];\n}', 'def f(x):\n    return x ** 2\n', 'SELECT * FROM t WHERE id = 42;', '<a href="x">y</a>', '{"key": [1, 2.5, null]}', 'https://example.com/a?b=c&d=1#e', 'C:\\dir\\file.txt', "it's 3.14159e-10 or 0xFF"];
const digits = () => Array.from({ length: 1 + random(9) }, () => random(10)).join('');
const cased = () => pick([(w) => w, (w) => w, (w) => w.toUpperCase(), (w) => w[0].toUpperCase() + w.slice(1), (w) => w + pick(WORDS).toUpperCase()])(pick(WORDS));
const PARTS = [cased, cased, cased, cased, () => ' ', () => ' ', () => ' ', () => ' ', () => pick(SPACES), digits, () => pick(PUNCTUATION), () => pick(ENDINGS), () => pick(pick(SCRIPTS)),
  () => pick(pick(SCRIPTS)), () => pick(EMOJI), () => pick(MARKS), () => pick(CODE)];
const RARE = [() => pick(ADDED), () => pick(CONTROLS), () => pick(PUNCTUATION).repeat(random(12)), () => pick(SPACES).repeat(random(9)), () => pick(pick(SCRIPTS)).repeat(3)];
const line = (n, rare) => Array.from({ length: n }, () => (random(rare) === 0 ? pick(RARE)() : pick(PARTS)())).join('');
const prose = (n) => Array.from({ length: n }, () => cased() + (random(6) ? '' : pick(ENDINGS)) + (random(5) ? '' : pick([',', '.', '!', '?', ';', ' -', ':']))).join(' ');

const texts = ['', ' ', '  ', '\n', 'a', 'A', '7', '.', "'", 'é', '世', '😀', '\u0000', ...SPACES, ...ENDINGS, ...PUNCTUATION, ...EMOJI, ...MARKS, ...CODE, ...ADDED, ...CONTROLS, ...SCRIPTS.map((s) => s.join(' '))];
for (let i = 0; i < 250; i++) texts.push(prose(1 + random(12)));
while (texts.length < 2100) texts.push(line(1 + random(9), 8));
for (const c of ['A', 'z', 'Z', '7', '.', ' ', '\n', '世', '\u0301', '👩‍👩‍👧', 'aB', ' a', '\n ']) texts.push(c.repeat(97), c.repeat(50) + 'x');
const corpus = [];
for (let i = 0; i < 700; i++) corpus.push(i % 3 ? line(10, 20) : prose(12));

// --- trainers ---

const ALPHABET = (() => {
  const own = (b) => (b >= 33 && b <= 126) || (b >= 161 && b !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(own(b) ? b : next++));
})();
const toAlphabet = (text) => [...Buffer.from(text, 'utf8')].map((b) => ALPHABET[b]);

// words: arrays of symbols. Returns the merges, most frequent pair first, ties by first appearance.
function train(words, n) {
  const merges = [];
  const made = new Set();
  while (merges.length < n) {
    const counts = new Map();
    for (const w of words)
      for (let i = 0; i + 1 < w.length; i++) {
        const key = w[i] + '\u0000' + w[i + 1];
        counts.set(key, (counts.get(key) ?? 0) + 1);
      }
    let best = null, most = 1;
    for (const [key, count] of counts) if (count > most && !made.has(key) && key.length < 18) [best, most] = [key, count];
    if (!best) break;
    made.add(best);
    const [left, right] = best.split('\u0000');
    merges.push([left, right]);
    for (const w of words)
      for (let i = 0; i + 1 < w.length; i++) if (w[i] === left && w[i + 1] === right) w.splice(i, 2, left + right);
  }
  return merges;
}

const added = (id, content, special, more = {}) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: !special, special, ...more });

const byteLevel = (() => {
  const merges = train(corpus.map(toAlphabet), 1300);
  const tokens = [...new Set([...ALPHABET, ...merges.map(([l, r]) => l + r)])];
  // Words that no merge makes: only ignore_merges finds them.
  for (const w of ['zebra', ' zebra', ' sentence', 'HTTPServer', '世界', ' 123'].map((w) => toAlphabet(w).join(''))) if (!tokens.includes(w)) tokens.push(w);
  const n = tokens.length;
  return {
    vocab: Object.fromEntries(tokens.map((t, i) => [t, i])), merges,
    added: [added(n, '<|endoftext|>', true), added(n + 1, '<|im_start|>', true), added(n + 2, '<|im_end|>', true), added(n + 3, '<think>', false, { normalized: false }), added(n + 4, '</think>', false, { normalized: false })],
  };
})();

// SentencePiece: pieces with scores; as BPE every cut of a piece into two pieces is a merge, best score first.
const MARK = '▁';
const spm = (() => {
  const lines = corpus.filter((_, i) => i % 2 === 0).map((l) => l.normalize('NFKC'));
  const merges = train(lines.map((l) => [...(MARK + l.replaceAll(' ', MARK))]), 900);
  const counts = new Map();
  for (const l of lines) for (const c of l.replaceAll(' ', MARK)) counts.set(c, (counts.get(c) ?? 0) + 1);
  const chars = [...counts].filter(([c, n]) => n > 2 && c !== '\n' && c !== '\u0000').sort((a, b) => b[1] - a[1]).map(([c]) => c);
  if (!chars.includes(MARK)) chars.push(MARK);
  const made = [...new Set(merges.map(([l, r]) => l + r))].filter((p) => [...p].every((c) => chars.includes(c)));
  const bytes = Array.from({ length: 256 }, (_, b) => `<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`);
  const pieces = ['<unk>', '<s>', '</s>', ...bytes, ...made, ...chars];
  const scores = pieces.map((p, i) => (i < 259 ? 0 : -(i - 259)));
  const id = new Map(pieces.map((p, i) => [p, i]));
  const cuts = [];
  for (const p of made) {
    const c = [...p];
    for (let i = 1; i < c.length; i++) {
      const l = c.slice(0, i).join(''), r = c.slice(i).join('');
      if (id.has(l) && id.has(r)) cuts.push([l, r, scores[id.get(p)]]);
    }
  }
  cuts.sort((a, b) => b[2] - a[2]);
  return {
    pieces, vocab: Object.fromEntries(pieces.map((p, i) => [p, i])), merges: cuts.map(([l, r]) => [l, r]), scores,
    added: [added(0, '<unk>', true), added(1, '<s>', true), added(2, '</s>', true)],
  };
})();

const unigram = (() => {
  const pieces = spm.pieces.filter((p) => !/^<0x..>$/.test(p));
  const text = corpus.join('\n').normalize('NFKC').replaceAll(' ', MARK);
  const rows = pieces.map((p, i) => [p, i < 3 ? 0 : -Math.round(1000 * Math.log((4 * text.length) / (1 + text.split(p).length) / p.length)) / 1000]);
  const bytes = Array.from({ length: 256 }, (_, b) => [`<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`, -20]);
  return { plain: rows, fallback: [...rows, ...bytes] };
})();

// WordPiece: pieces of lower-case words, those that go on in a word with ## before them.
const wordpiece = (() => {
  const words = corpus.flatMap((l) => l.toLowerCase().normalize('NFD').split(/[^\p{L}\p{N}\p{M}]+/u)).concat(corpus.flatMap((l) => l.split(/[^\p{L}\p{N}\p{M}]+/u))).filter((w) => w).map((w) => [...w]);
  const merges = train(words.map((w) => [w[0], ...w.slice(1).map((c) => '\u0001' + c)]), 700);
  const chars = new Set(words.flat());
  const own = [...new Set([...chars, ...[...chars].map((c) => '##' + c), ...merges.map(([l, r]) => { const p = l + r; return (p[0] === '\u0001' ? '##' : '') + p.replaceAll('\u0001', ''); }), ..."!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~。、—“”"])].filter((p) => !p.includes('\u0301'));
  const pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', ...own];
  return { vocab: Object.fromEntries(pieces.map((p, i) => [p, i])), added: pieces.slice(0, 5).map((p, i) => added(i, p, true)) };
})();

// --- the kinds ---

const split = (regex, more = {}) => ({ type: 'Split', pattern: { Regex: regex }, behavior: 'Isolated', invert: false, ...more });
const level = (use_regex) => ({ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex });
const sequence = (...pretokenizers) => ({ type: 'Sequence', pretokenizers });
const END = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const TAIL = '| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const CASED = '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+E|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*E';
const SLASH = '| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const literal = (regex) => regex.replace(/\\x\{([0-9a-f]+)\}/g, (_, hex) => String.fromCodePoint(parseInt(hex, 16)));
const DEEPSEEK_LETTERS = literal('\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+');
const CJK = literal('[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+');
const template = (token, id) => ({ type: 'TemplateProcessing', single: [{ SpecialToken: { id: token, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }], pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }], special_tokens: { [token]: { id: token, ids: [id], tokens: [token] } } });
const bl = (name, pre_tokenizer, more = {}) => ({ name, vocab: 'byte_level', normalizer: null, pre_tokenizer, decoder: level(true), post_processor: level(true), model: {}, ...more });
const FALLBACK = { byte_fallback: true, fuse_unk: true, unk_token: '<unk>' };
const SPM_DECODER = { type: 'Sequence', decoders: [{ type: 'Replace', pattern: { String: MARK }, content: ' ' }, { type: 'ByteFallback' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }] };
const GEMMA_DECODER = { type: 'Sequence', decoders: SPM_DECODER.decoders.slice(0, 3) };
const metaspace = (prepend_scheme, split_) => ({ type: 'Metaspace', replacement: MARK, prepend_scheme, split: split_ });
const toMark = { type: 'Replace', pattern: { String: ' ' }, content: MARK };

// SentencePiece's compiled table: a double array. The children of a node stand at base ^ label; a leaf is the child of label 0.
function charsmap(pairs) {
  const root = { children: new Map() };
  let texts = Buffer.alloc(0);
  for (const [from, to] of pairs) {
    let node = root;
    for (const byte of Buffer.from(from)) {
      if (!node.children.has(byte)) node.children.set(byte, { children: new Map() });
      node = node.children.get(byte);
    }
    node.value = texts.length;
    texts = Buffer.concat([texts, Buffer.from(to + '\0')]);
  }
  const units = [0], taken = new Set([0]), bases = new Set(), queue = [[root, 0, 0]];
  for (const [node, at, label] of queue) {
    const labels = [...node.children.keys(), ...(node.value === undefined ? [] : [0])];
    let base = 1;
    while (bases.has(base) || labels.some((l) => taken.has(base ^ l))) base++;
    bases.add(base);
    for (const l of labels) taken.add(base ^ l);
    units[at] = (((at ^ base) << 10) | (node.value === undefined ? 0 : 256) | label) >>> 0;
    if (node.value !== undefined) units[base] = (0x80000000 | node.value) >>> 0;
    for (const [l, child] of node.children) queue.push([child, base ^ l, l]);
  }
  const size = (Math.max(...taken) | 255) + 1;
  const tree = Buffer.alloc(4 + size * 4);
  tree.writeUInt32LE(size * 4, 0);
  for (const i of taken) tree.writeUInt32LE(units[i] ?? 0, 4 + i * 4);
  return Buffer.concat([tree, texts]).toString('base64');
}
const MAPPED = [['\t', ' '], ['\n', ' '], ['\u3000', ' '], ['\ufb01', 'fi'], ['\ufb02', 'fl'], ['\ufb00', 'ff'], ['\u2167', 'VIII'], ['\u2460', '1'], ['\u2026', '...'], ['e\u0301', '\u00e9'], ['\u00bd', '1/2'], ['\u200b', ''],
  ...Array.from({ length: 94 }, (_, i) => [String.fromCodePoint(0xff01 + i), String.fromCodePoint(0x21 + i)])];

const KINDS = [
  bl('gpt-2', level(true)),
  bl('smollm', sequence({ type: 'Digits', individual_digits: true }, level(true))),
  bl('llama-bpe', sequence(split(`${END}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}${TAIL}`), level(false)), { model: { ignore_merges: true }, post_processor: { type: 'Sequence', processors: [level(true), template('<|endoftext|>', byteLevel.added[0].id)] } }),
  bl('qwen2', sequence(split(`${END}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}${TAIL}`), level(false)), { normalizer: { type: 'NFC' } }),
  bl('qwen35', sequence(split(`${END}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`), level(false)), { normalizer: { type: 'NFC' } }),
  bl('tekken', sequence(split(`${CASED.replaceAll('E', '')}|\\p{N}${SLASH}`), level(false)), { model: { ignore_merges: true } }),
  bl('gpt-4o', sequence(split(`${CASED.replaceAll('E', END + '?')}|\\p{N}{1,3}${SLASH}`), level(false))),
  bl('glm4', sequence(split(`${END}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}${TAIL}`), level(false))),
  bl('deepseek-llm', sequence(split('[\r\n]'), split(DEEPSEEK_LETTERS), split(literal('\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+')), split('\\s+$'), split(CJK), { type: 'Digits', individual_digits: true }, level(false))),
  bl('deepseek-coder', sequence(split('[\r\n]'), split('\\s?\\p{L}+'), split('\\s?\\p{P}+'), split(CJK), { type: 'Digits', individual_digits: true }, level(false))),
  bl('deepseek-v3', sequence(split('\\p{N}{1,3}'), split(literal('[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+')), split('[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+'), level(false)), { normalizer: { type: 'Sequence', normalizers: [] } }),
  { name: 'llama2', vocab: 'spm', normalizer: { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: MARK }, toMark] }, pre_tokenizer: null, decoder: SPM_DECODER, post_processor: template('<s>', 1), model: FALLBACK },
  { name: 'mistral', vocab: 'spm', normalizer: null, pre_tokenizer: metaspace('first', false), decoder: SPM_DECODER, post_processor: template('<s>', 1), model: FALLBACK },
  { name: 'gemma', vocab: 'spm', normalizer: toMark, pre_tokenizer: { type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithPrevious', invert: false }, decoder: GEMMA_DECODER, post_processor: null, model: FALLBACK },
  { name: 'unknown', vocab: 'spm', normalizer: toMark, pre_tokenizer: null, decoder: GEMMA_DECODER, post_processor: null, model: { byte_fallback: false, fuse_unk: false, unk_token: '<unk>' } },
  { name: 't5', vocab: 'unigram_plain', normalizer: { type: 'NFKC' }, pre_tokenizer: sequence({ type: 'WhitespaceSplit' }, metaspace('always', true)), decoder: metaspace('always', true), post_processor: null, model: {} },
  { name: 'unigram', vocab: 'unigram_fallback', normalizer: { type: 'Sequence', normalizers: [{ type: 'NFD' }, { type: 'Lowercase' }, { type: 'StripAccents' }, { type: 'Strip', strip_left: true, strip_right: true }, { type: 'Replace', pattern: { Regex: ' {2,}' }, content: ' ' }] }, pre_tokenizer: metaspace('always', true), decoder: metaspace('always', true), post_processor: null, model: { byte_fallback: true } },
  { name: 'charsmap', vocab: 'unigram_plain', normalizer: { type: 'Precompiled', precompiled_charsmap: charsmap(MAPPED) }, pre_tokenizer: metaspace('always', true), decoder: metaspace('always', true), post_processor: null, model: {} },
  ...[['bert', true], ['bert-cased', false]].map(([name, lowercase]) => ({ name, vocab: 'wordpiece', normalizer: { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase },
    pre_tokenizer: { type: 'BertPreTokenizer' }, decoder: { type: 'WordPiece', prefix: '##', cleanup: true }, model: {},
    post_processor: { type: 'TemplateProcessing', single: [{ SpecialToken: { id: '[CLS]', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }, { SpecialToken: { id: '[SEP]', type_id: 0 } }], pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }], special_tokens: { '[CLS]': { id: '[CLS]', ids: [2], tokens: ['[CLS]'] }, '[SEP]': { id: '[SEP]', ids: [3], tokens: ['[SEP]'] } } } })),
  bl('pieces', sequence({ type: 'Punctuation', behavior: 'MergedWithPrevious' }, { type: 'Digits', individual_digits: false }, split('[aeiou]', { behavior: 'MergedWithNext' }), split('[st]+', { behavior: 'Contiguous', invert: true }), split('x', { behavior: 'Removed' }), { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: false }), { normalizer: { type: 'NFKD' } }),
  bl('whitespace', sequence({ type: 'Whitespace' }, level(false))),
];
const VOCABS = {
  byte_level: { type: 'BPE', vocab: byteLevel.vocab, merges: byteLevel.merges.map(([l, r]) => `${l} ${r}`), added_tokens: byteLevel.added },
  spm: { type: 'BPE', vocab: spm.vocab, merges: spm.merges, added_tokens: spm.added },
  unigram_plain: { type: 'Unigram', unk_id: 0, vocab: unigram.plain, added_tokens: spm.added },
  wordpiece: { type: 'WordPiece', unk_token: '[UNK]', continuing_subword_prefix: '##', max_input_chars_per_word: 100, vocab: wordpiece.vocab, added_tokens: wordpiece.added },
  unigram_fallback: { type: 'Unigram', unk_id: 0, vocab: unigram.fallback, added_tokens: spm.added },
};

// --- the vectors ---

const hash = (ids) => {
  let h = 2166136261;
  for (const id of ids) for (let i = 0; i < 32; i += 8) h = Math.imul(h ^ ((id >>> i) & 255), 16777619);
  return (h >>> 0).toString(16).padStart(8, '0');
};
const out = process.argv[2];
mkdirSync(out, { recursive: true });
writeFileSync(`${out}/texts.json`, JSON.stringify(texts).replaceAll('","', '",\n"') + '\n');
for (const [name, vocab] of Object.entries(VOCABS)) {
  const { added_tokens, ...model } = vocab;
  writeFileSync(`${out}/vocab_${name}.json`, JSON.stringify({ added_tokens, model }) + '\n');
}
const N_FULL = 20;
const DECODED = new Set(['gpt-2', 'llama2', 'mistral', 'gemma', 't5']);
for (const kind of KINDS) {
  const { added_tokens, ...model } = VOCABS[kind.vocab];
  const { name, vocab, model: options, ...steps } = kind;
  const t = Tokenizer.fromString(JSON.stringify({ version: '1.0', added_tokens, ...steps, model: { ...model, ...options } }));
  let hashes = '';
  const full = [];
  let decoded = '';
  for (let i = 0; i < texts.length; i++) {
    const ids = [...(await t.encode(texts[i], null, { addSpecialTokens: i % 2 === 1 })).getIds()];
    hashes += hash(ids);
    if (full.length < N_FULL && i % 97 === 5) full.push([i, ids]);
    if (DECODED.has(name)) decoded += hash([...Buffer.from(await t.decode(ids, true))]);
  }
  writeFileSync(`${out}/kind_${name}.json`, `${JSON.stringify({ name, vocab, steps, model: options })}\n`.slice(0, -2) +
    `,\n"ids":${JSON.stringify(full)},\n"hashes":"${hashes}",\n"decoded":"${decoded}"}\n`);
  console.log(name, texts.length);
}
