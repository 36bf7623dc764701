// schema_vectors.mjs - makes tests/text/vectors/schemas.json: JSON Schemas as clients send them, and texts that are valid or not.
//
//   npm install zod@4 ajv@8 ajv-formats@3        (in any folder)
//   node <tree>/tools/golden/schema_vectors.mjs <tree>/tests/text/vectors        (in that folder)
//
// zod's own toJSONSchema makes the schemas of zod's kinds; the others are written as pydantic, the OpenAI SDK and people write them.
// Ajv, which shares nothing with our grammar, says what is valid; for zod's kinds zod has to agree. Beside the values that are listed
// there are changed ones: each is a valid text with some characters replaced, left out or put in, kept where Ajv refuses it.
// Deterministic: the same file every time.
import { createRequire } from 'node:module';
import { writeFileSync } from 'node:fs';
const require = createRequire(process.cwd() + '/');
const z = require('zod');
const Ajv = require('ajv/dist/2020');
const ajv = new Ajv({ strict: false, logger: false, multipleOfPrecision: 6 });
require('ajv-formats')(ajv);

let state = 20261122;
const random = (n) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 4294967296) * n);
};

// name, zod's schema or JSON Schema, valid values, invalid values
const s = (more) => ({ type: 'string', ...more });
const n = (more) => ({ type: 'number', ...more });
const o = (properties, more) => ({ type: 'object', properties, ...more });
const int = { type: 'integer' };
const CASES = [
  ['email', z.email(), ["o'neil.x+y@mail.example.org", 'a@b.co'], ['a@b', '.a@b.co', 'a..b@c.de', '@b.co']],
  ['email max', z.email().max(20), ['abcdefgh@example.org'], ['abcdefghi@example.org']],
  ['uuid', z.uuid(), ['123e4567-e89b-12d3-a456-426614174000', '00000000-0000-0000-0000-000000000000'], ['123e4567-e89b-92d3-a456-426614174000']],
  ['uuidv4', z.uuidv4(), ['123e4567-e89b-42d3-a456-426614174000'], ['123e4567-e89b-12d3-a456-426614174000']],
  ['guid', z.guid(), ['123e4567-e89b-02d3-0456-426614174000'], ['123e4567']],
  ['url', z.url(), ['https://example.org/a%20b?c=d#e', 'mailto:a@b.org', 'https://u.example.org:8080'], ['example.org', 'http://a b']],
  ['nanoid', z.nanoid(), ['V1StGXR8_Z5jdHi6B-myT'], ['V1StGXR8_Z5jdHi6B-my']],
  ['cuid', z.cuid(), ['cjld2cjxh0000qzrmn831i7rn'], ['xjld2cjxh0000']],
  ['cuid2', z.cuid2(), ['tz4a98xxat96iws9zmbrgj3a'], ['TZ']],
  ['ulid', z.ulid(), ['01ARZ3NDEKTSV4RRFFQ69G5FAV'], ['81ARZ3NDEKTSV4RRFFQ69G5FAV', '01ARZ3NDEKTSV4RRFFQ69G5FAU']],
  ['xid', z.xid(), ['9m4e2mr0ui3e8a215n4g'], ['9m4e2mr0ui3e8a215n4z']],
  ['ksuid', z.ksuid(), ['0ujtsYcgvSTl8PAuAdqWYSMnLOv'], ['0ujtsYcgvSTl8PAuAdqWYSMnLO']],
  ['ipv4', z.ipv4(), ['192.168.0.255', '0.0.0.0'], ['256.1.1.1', '1.2.3', '01.2.3.4']],
  ['ipv6', z.ipv6(), ['::1', '2001:db8::ff00:42:8329', '1:2:3:4:5:6:7:8', '::'], ['1::2::3', '1:2:3', 'g::1']],
  ['cidrv4', z.cidrv4(), ['10.0.0.0/8'], ['10.0.0.0', '10.0.0.0/33']],
  ['cidrv6', z.cidrv6(), ['2001:db8::/32'], ['2001:db8::/129']],
  ['mac', z.mac(), ['00:1a:2b:3c:4d:5e'], ['00:1a:2b:3c:4d']],
  ['base64', z.base64(), ['', 'aGk=', 'aGVsbG8h'], ['aGk', 'a===']],
  ['base64url', z.base64url(), ['aGk', 'a-_b'], ['aGk=', 'a+b/']],
  ['hex', z.hex(), ['00ff', ''], ['xy']],
  ['e164', z.e164(), ['+14155552671'], ['14155552671', '+0123456789']],
  ['datetime', z.iso.datetime(), ['2024-02-29T23:59:59.123Z'], ['2023-02-29T00:00:00Z', '2024-01-01T24:00:00Z', '2024-01-01']],
  ['datetime offset', z.iso.datetime({ offset: true }), ['2024-01-31T12:00:00+02:00'], ['2024-01-31T12:00:00+0200']],
  ['datetime local', z.iso.datetime({ local: true }), ['2024-01-31T12:00:00'], ['2024-01-32T12:00:00']],
  ['date', z.iso.date(), ['2000-02-29', '1999-12-31'], ['1900-02-29', '2024-04-31', '2024-13-01', '2024-00-01']],
  ['time', z.iso.time(), ['12:34:56', '00:00'], ['24:00:00', '12:60:00']],
  ['duration', z.iso.duration(), ['PT1H30M', 'P1Y2M3DT4H5M6S', 'P3W', 'PT5S'], ['P', 'PT', 'P1H', '1D', 'P1W1D']],
  ['hostname', z.hostname(), ['a.b-c.org', 'localhost'], ['-a', 'a..b', 'a_b']],
  ['jwt', z.jwt(), ['eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.e30.c2ln'], []],
  ['regex max', z.string().regex(/^[a-z]+$/).max(5), ['a', 'abcde'], ['', 'abcdef', 'A']],
  ['regex min', z.string().regex(/b/).min(3).max(4), ['abc', 'aabb'], ['b', 'aaa', 'aabbb']],
  ['parts', z.string().startsWith('ab').endsWith('z').includes('q'), ['abqz', 'ab q z'], ['abz', 'bqz', 'abq']],
  ['starts long', z.string().startsWith('https://').max(2048), ['https://x'], ['http://x']],
  ['upper', z.string().uppercase(), ['ABC 1'], ['aB']],
  ['password', z.string().regex(/^(?=.*[A-Z])(?=.*\d)(?!.*\s).{8,}$/), ['Passw0rd!'], ['password', 'Passw0r', 'Pass w0rd']],
  ['min', z.number().min(0.5), [0.5, 0.75, 12], [0.49, 0, -1]],
  ['between', z.number().gt(0.1).lt(0.3), [0.2, 0.299, 0.11], [0.1, 0.3, 1, -0.2]],
  ['positive', z.number().positive(), [0.001, 3], [0, -0.5]],
  ['step', z.number().multipleOf(0.01), [0.07, 5, 12.5, -3.25], [0.001, 1.005]],
  ['step of five', z.int().multipleOf(5).min(-20).max(100), [-20, 0, 55, 100], [3, 105, -25]],
  ['int', z.int(), [0, -7, 9007199254740991], [1.5]],
  ['int32', z.int32(), [2147483647, -2147483648], [2147483648]],
  ['float32', z.float32(), [1.5, -2], []],
  ['length', z.string().length(4), ['abcd', '\u{1f98a}\n"\\'], ['abc', 'abcde']],
  ['literals', z.literal([1, 'a', null]), [1, 'a', null], [2, 'b']],
  ['object', z.object({ a: z.string(), b: z.number().optional(), c: z.boolean().nullable() }), [{ a: 'x', c: null }, { a: '', b: 1.5, c: true }], [{ a: 'x' }, { c: null }, { a: 1, c: null }]],
  ['free object', z.looseObject({ a: z.int() }), [{ a: 1, b: 2 }, { a: 1 }], [{ b: 2 }]],
  ['catchall', z.object({ a: z.string() }).catchall(z.number()), [{ a: 'x', b: 1 }], [{ a: 'x', b: 'y' }]],
  ['record', z.record(z.string(), z.number()), [{}, { x: 1 }], [{ x: 'y' }]],
  ['record of names', z.record(z.enum(['a', 'b']), z.int()), [{ a: 1, b: 2 }], [{ a: 1 }, { a: 1, b: 2, c: 3 }]],
  ['record of some names', z.partialRecord(z.enum(['a', 'b']), z.int()), [{}, { b: 2 }], [{ c: 3 }]],
  ['record of patterns', z.record(z.string().regex(/^[a-z]{1,3}$/), z.int()), [{ ab: 1 }], [{ abcd: 1 }, { A: 1 }]],
  ['tuple', z.tuple([z.string(), z.int()]).rest(z.boolean()), [['a', 1], ['a', 1, true, false]], [['a'], [1, 'a'], ['a', 1, 2]]],
  ['union', z.union([z.string().max(2), z.int().min(3)]), ['ab', 3], ['abc', 2]],
  ['discriminated', z.discriminatedUnion('k', [z.object({ k: z.literal('a'), x: z.int() }), z.object({ k: z.literal('b') })]), [{ k: 'a', x: 1 }, { k: 'b' }], [{ k: 'a' }, { k: 'c' }]],
  ['intersection', z.intersection(z.object({ a: z.int() }), z.object({ b: z.int() })), [{ a: 1, b: 2 }], [{ a: 1 }]],
  ['array', z.array(z.email()).min(1).max(2), [['a@b.co']], [[], ['a']]],
  ['recursive', z.object({ v: z.int(), get next() { return z.lazy(() => NODE).nullable(); } }), [{ v: 1, next: null }, { v: 1, next: { v: 2, next: null } }], [{ v: 1 }]],
  // formats alone
  ...Object.entries({
    date: [['2024-02-29'], ['2023-02-29']], time: [['23:59:59Z', '00:00:00.5+02:00'], ['12:00:00', '24:00:00Z']],
    'date-time': [['2024-01-31T12:00:00Z'], ['2024-02-30T12:00:00Z']], duration: [['PT1H30M', 'P1Y2M', 'P2W', 'P1DT12H'], ['P', 'PT', 'P1S']],
    email: [["o'neil@example.org"], ['a', 'a@', 'a b@c.de']], hostname: [['example.org'], ['a..b']], ipv4: [['1.2.3.4'], ['1.2.3.4.5']],
    ipv6: [['::1', '::ffff:1.2.3.4', '1::'], [':1', '1::2::3']], uri: [['https://a.b/c%20d#x', 'mailto:a@b.c', 'urn:isbn:123', 'http://a?q=1'], ['a b', '/x', 'http://a/%2']],
    'uri-reference': [['/a/b?c#d', '../x', '#x'], ['a b', '\\']], 'uri-template': [['https://a.b/c'], ["it's"]], uuid: [['123e4567-e89b-12d3-a456-426614174000'], ['x']],
    'json-pointer': [['', '/a/~0b~1'], ['a', '/~2']], 'relative-json-pointer': [['0#', '1/a'], ['a']],
  }).map(([format, [good, bad]]) => [`format ${format}`, s({ format }), good, bad]),
  ['pydantic url', s({ format: 'uri', minLength: 1, maxLength: 2083 }), ['https://example.org/'], ['x']],
  ['unknown format', s({ format: 'color' }), ['red', ''], [1]],
  ['no keyword', s({ minItems: 3, foo: 1, 'x-y': {}, minimum: 4, propertyOrdering: [], if: true, $comment: 'c' }), ['', 'ab'], [1]],
  ['pattern and format', s({ format: 'date', pattern: '^20' }), ['2024-02-29'], ['1999-01-01', '2023-02-29']],
  ['blanks', s({ pattern: '^\\s+\\S$' }), [' \u00a0\u3000a', '\t\ufeffx', '\u2028b'], ['a', '\u00a0', ' \u200b ']],
  ['dot', s({ pattern: '^.$' }), ['a', '\u0085'], ['\n', '\u2028', '\r']],
  ['anchors', s({ pattern: '^$|^a|b$' }), ['', 'ax', 'xb'], ['x']],
  ['fractions', n({ minimum: -1.25, maximum: 0.5 }), [-1.25, -0.1, 0, 0.5], [-1.26, 0.51, 1]],
  ['open at five', n({ exclusiveMinimum: 5 }), [5.1, 6], [5, 4.9]],
  ['beyond all digits', n({ minimum: -1e300, maximum: 1e300 }), [1.5, -7], []],
  ['quarters', n({ multipleOf: 0.25, minimum: 0.1 }), [0.25, 3, 1.5], [0.1, 0.3, 0]],
  ['sevens', { type: 'integer', multipleOf: 7, minimum: 5, maximum: 7000 }, [7, 700, 7000], [5, 8, 0, 7007]],
  ['some property', { type: 'object', minProperties: 1 }, [{ a: 1 }], [{}]],
  ['two of three', o({ a: int, b: int, c: int }, { minProperties: 2 }), [{ a: 1, c: 2 }, { a: 1, b: 2, c: 3 }], [{}, { b: 1 }]],
  ['at most one', o({ a: int, b: int }, { maxProperties: 1, additionalProperties: { type: 'null' } }), [{}, { b: 1 }, { x: null }], [{ a: 1, b: 2 }, { a: 1, x: null }]],
  ['patterns of names', { type: 'object', patternProperties: { '^s_': { type: 'string' }, '^n_': int }, additionalProperties: false }, [{}, { s_x: 'a', n_y: 1 }], [{ s_x: 1 }, { x: 1 }]],
  ['name under a pattern', o({ s_x: { type: ['string', 'null'] } }, { patternProperties: { '^s_': { type: 'string' } }, required: ['s_x'] }), [{ s_x: 'a' }], [{ s_x: null }, {}]],
  ['free', { type: 'object', properties: {} }, [{}, { a: [1] }], [[]]],
  ['nothing else', { type: 'object', unevaluatedProperties: false }, [{}], [{ a: 1 }]],
  ['nothing else beside allOf', { allOf: [o({ a: int })], properties: { b: { type: 'null' } }, unevaluatedProperties: false }, [{ b: null }, {}], [{ c: 1 }, { a: 'x' }]],
  ['additional across allOf', { type: 'object', allOf: [{ properties: { a: int }, additionalProperties: s() }, { properties: { b: { type: ['string', 'integer'] } }, additionalProperties: true }] }, [{ a: 1 }, { a: 1, b: 'x' }, { z: 'y' }], [{ b: 1 }, { z: 1 }, { a: 'x' }]],
  ['false across allOf', { type: 'object', allOf: [{ properties: { a: int }, additionalProperties: false }, { properties: { b: int } }] }, [{}, { a: 1 }], [{ b: 1 }, { a: 1, b: 2 }]],
  ['items across allOf', { type: 'array', allOf: [{ items: int }, { prefixItems: [{ minimum: 3 }], items: { maximum: 2 } }] }, [[3], [4, 2, -1]], [[2], [3, 3], ['a']]],
  ['unevaluated items', { type: 'array', prefixItems: [int], unevaluatedItems: false }, [[1]], [[1, 2], ['a']]],
  ['some of a tuple', { type: 'array', prefixItems: [int, s()], minItems: 1, maxItems: 3 }, [[1], [1, 'a'], [1, 'a', null]], [[], ['a'], [1, 2], [1, 'a', 1, 1]]],
  ['anything but null', { not: { type: 'null' } }, [1, 'a', {}, []], [null]],
  ['not a beginning', s({ not: { pattern: '^a' } }), ['', 'ba'], ['a', 'ab']],
  ['not these', s({ not: { enum: ['a', 'b'] }, maxLength: 1 }), ['', 'c'], ['a', 'b', 'cc']],
  ['not empty', s({ not: { const: '' } }), ['x'], ['']],
  ['not true', { type: 'boolean', not: { const: true } }, [false], [true]],
  ['not short', s({ not: { maxLength: 2 } }), ['abc'], ['ab', '']],
  ['not with it', o({ a: int, b: int }, { not: { required: ['a'] } }), [{}, { b: 1 }], [{ a: 1 }]],
  ['one or the other', o({ a: int, b: int }, { anyOf: [{ required: ['a'] }, { required: ['b'] }] }), [{ a: 1 }, { b: 1 }, { a: 1, b: 2 }], [{}]],
  ['type beside anyOf', s({ anyOf: [{ format: 'date' }, { maxLength: 3 }, { type: 'integer' }] }), ['abc', '2024-01-01'], ['abcd', 1]],
  ['type beside oneOf', o({ c: int }, { oneOf: [{ properties: { k: { const: 'a' } }, required: ['k'] }, { properties: { k: { const: 'b' } }, required: ['k'] }] }), [{ k: 'a' }, { c: 1, k: 'b' }], [{}, { k: 'c' }]],
  ['beside a reference', { $defs: { s: s() }, $ref: '#/$defs/s', maxLength: 3, description: 'd' }, ['abc'], ['abcd', 1]],
  ['numbers of a list', { enum: [1, 2, 3, 'a'], minimum: 2 }, [2, 3, 'a'], [1]],
  ['strings of a list', { enum: ['a', 'bb', 'ccc'], maxLength: 2 }, ['a', 'bb'], ['ccc']],
  ['strict', o({ name: s(), tags: { type: 'array', items: s({ enum: ['a', 'b'] }) }, note: { anyOf: [s(), { type: 'null' }] } }, { required: ['name', 'tags', 'note'], additionalProperties: false }), [{ name: '', tags: ['a'], note: null }], [{ name: '', tags: [] }, { name: '', tags: ['c'], note: null }]],
  ['pydantic', o({ id: { title: 'Id', exclusiveMinimum: 0, type: 'integer' }, price: n({ minimum: 0.5 }), when: { anyOf: [s({ format: 'date-time' }), { type: 'null' }], default: null } }, { required: ['id', 'price'], title: 'M' }), [{ id: 1, price: 0.5 }, { id: 1, price: 2, when: '2024-01-31T12:00:00Z' }], [{ id: 0, price: 1 }, { id: 1, price: 0.4 }]],
  ['draft 4', n({ minimum: 1, exclusiveMinimum: true, maximum: 2 }), [1.5, 2], [1, 2.1], { minimum: undefined, exclusiveMinimum: 1, maximum: 2 }],
];
const NODE = CASES.find((c) => c[0] === 'recursive')[1];

const ALPHABET = '0123456789abzAZ .-+:/@%#_"\\[]{},\u00e9';
function changed(text) {
  const chars = [...text];
  for (let i = 1 + random(2); i > 0; i--) chars.splice(random(chars.length + 1), random(3), ...(random(2) ? [ALPHABET[random(ALPHABET.length)]] : []));
  return chars.join('');
}
const parse = (text) => { try { return { value: JSON.parse(text) }; } catch { return null; } };

const out = CASES.map(([name, what, good, bad, judged]) => {
  const schema = what.safeParse ? z.toJSONSchema(what) : what;
  const validate = ajv.compile(judged ? { ...schema, ...judged } : schema);
  for (const value of good) if (!validate(value) || (what.safeParse && !what.safeParse(value).success)) throw new Error(`${name}: ${JSON.stringify(value)} is not valid`);
  for (const value of bad) if (validate(value)) throw new Error(`${name}: ${JSON.stringify(value)} is valid`);
  const valid = good.map((v) => JSON.stringify(v)), invalid = new Set(bad.map((v) => JSON.stringify(v)));
  for (let i = 0; i < 120 && invalid.size < 30; i++) {
    const text = changed(valid[random(valid.length)]), read = parse(text);
    if (!read || !validate(read.value)) invalid.add(text);
  }
  return { name, schema, valid, invalid: [...invalid] };
});
const head = `{"about": "written by tools/golden/schema_vectors.mjs with zod ${require('zod/package.json').version}, ajv ${require('ajv/package.json').version}", "cases": [\n`;
writeFileSync(`${process.argv[2]}/schemas.json`, head + out.map((c) => JSON.stringify(c)).join(',\n') + '\n]}\n');
console.log(`${out.length} schemas, ${out.reduce((a, c) => a + c.valid.length, 0)} valid and ${out.reduce((a, c) => a + c.invalid.length, 0)} invalid texts`);
