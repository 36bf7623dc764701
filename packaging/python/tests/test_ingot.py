"""The package against the model inside the library. INGOT_LIBRARY names the library, PYTHONPATH the package."""
import json
import os
import signal
import threading
import time
import unittest
from pathlib import Path

import ingot

QUESTION = [{"role": "user", "content": "What is 12 + 30?"}]
STORY = [{"role": "user", "content": "Tell me a story about a fox."}]


GOLDEN = Path(__file__).parents[3] / "tests" / "golden"


class Adapters(unittest.TestCase):
    def test_an_answer_has_the_adapters_that_it_names(self):
        adapters = [GOLDEN / "lora/tinyllama-all/adapter.gguf", (GOLDEN / "lora/tinyllama-root", "root", 0.5)]
        with ingot.Engine(GOLDEN / "tinyllama/model.gguf", device="cpu", adapters=adapters) as engine:
            self.assertEqual(engine.adapters, {"adapter": 1.0, "root": 0.5})
            prompt = [(i * 37 + 3) % 257 for i in range(20)]
            answers = [engine.generate(prompt, temperature=0, max_tokens=9, adapters=uses).tokens for uses in ({}, {"adapter": 1}, {"root": 1.5})]
            self.assertEqual(len({tuple(answer) for answer in answers}), 3)
            self.assertEqual(engine.generate(prompt, temperature=0, max_tokens=9, adapters={"root": 0}).tokens, answers[0])
            with self.assertRaisesRegex(ingot.IngotError, "no adapter is called 'other'; the engine has: adapter root"):
                engine.generate(prompt, adapters={"other": 1})
        with self.assertRaises(TypeError):
            ingot.Engine(adapters=[()])


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = ingot.Engine(device="cpu", n_sequences=3, n_threads=1)

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()

    def test_streamed_pieces_are_the_answer(self):
        whole = self.engine.generate(STORY, temperature=0, max_tokens=30)
        pieces = list(self.engine.stream(STORY, temperature=0, max_tokens=30))
        self.assertGreater(len(pieces), 5)
        self.assertEqual("".join(pieces), whole.text)
        self.assertEqual(whole.finish, "length")
        self.assertEqual(len(whole.tokens), 30)
        self.assertEqual(self.engine.detokenize(whole.tokens), whole.text)

    def test_a_prompt_is_text_messages_or_tokens(self):
        text = self.engine.generate("Once upon a time", temperature=0, max_tokens=8)
        tokens = self.engine.tokenize("Once upon a time")
        self.assertEqual(self.engine.detokenize(tokens), "Once upon a time")
        self.assertIn(text.n_prompt - len(tokens), (0, 1))  # a text may get a token for its beginning
        self.assertEqual(self.engine.generate(tokens, max_tokens=2).n_prompt, len(tokens))
        self.assertIn("42", self.engine.generate(QUESTION, temperature=0, max_tokens=20).text)
        for wrong in (12, [{"role": "user"}], [1.5], [None], {"role": "user"}):
            with self.assertRaises(TypeError):
                self.engine.generate(wrong)
        with self.assertRaises(ValueError):
            self.engine.generate("a\0b")

    def test_the_vocabulary_can_be_asked(self):
        text = "tea and caf\u00e9"
        tokens = self.engine.tokenize(text)
        self.assertEqual(self.engine.count_tokens(text), len(tokens))
        self.assertEqual(b"".join(self.engine.token(token).bytes for token in tokens).decode(), text)
        eos = self.engine.token(self.engine.special_token("eos"))
        self.assertTrue(eos.ends_answer)
        self.assertEqual((eos.kind, self.engine.find_token(eos.spelling)), ("control", eos.id))
        marked = self.engine.tokenize("a" + eos.spelling, parse_special=True)
        self.assertEqual(marked[-1], eos.id)
        self.assertEqual(self.engine.detokenize(marked), "a")
        self.assertEqual(self.engine.detokenize(marked, keep_special=True), "a" + eos.spelling)
        self.assertIsNone(self.engine.find_token("no such token"))
        for wrong in (-1, self.engine.info.n_vocab, 1 << 40):
            with self.assertRaises(IndexError):
                self.engine.token(wrong)

    def test_a_prompt_can_be_seen(self):
        text = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
        seen = self.engine.render([{"role": "user", "content": "Hello"}])
        self.assertEqual((seen.text, seen.reasoning), (text, "none"))
        self.assertEqual(self.engine.detokenize(seen.tokens, keep_special=True), text)
        parts = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
        self.assertEqual(self.engine.render(parts, template_variables={"enable_thinking": False}).text, text)
        begun = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Well,", "reasoning_content": "Hm."}]
        seen = self.engine.render(begun, continue_last=True)
        self.assertEqual((seen.text, seen.reasoning), (text + "<think>\nHm.\n</think>\n\nWell,", "closed"))
        self.assertEqual(self.engine.generate(begun, continue_last=True, max_tokens=2).n_prompt, len(seen.tokens))
        with self.assertRaises(ingot.IngotError) as raised:
            self.engine.render([{"role": "user", "content": [{"type": "image_url"}]}])
        self.assertEqual(raised.exception.code, ingot.Code.UNSUPPORTED)

    def test_tokens_have_log_probabilities(self):
        result = self.engine.generate(STORY, temperature=0, max_tokens=8, top_logprobs=3)
        self.assertEqual(len(result.logprobs), len(result.tokens))
        for token, (own, *top) in zip(result.tokens, result.logprobs):
            self.assertEqual(own, top[0])  # without a temperature the likeliest comes
            self.assertEqual((own[0], len(top)), (token, 3))
            self.assertTrue(0 >= top[0][1] >= top[1][1] >= top[2][1])
        self.assertEqual(self.engine.generate(STORY, temperature=0, max_tokens=8).logprobs, [])
        with self.assertRaises(ingot.IngotError):
            self.engine.generate(STORY, top_logprobs=2000)

    def test_what_is_kept_and_what_can_be_followed(self):
        tokens = [300 + 7 * i for i in range(50)]
        self.assertEqual(self.engine.kept(tokens), 0)
        self.engine.generate(tokens, max_tokens=1)
        self.assertEqual(self.engine.kept(tokens), 48)
        ingot.check_grammar(ingot.schema_to_grammar({"type": "integer"}))
        for wrong in (lambda: ingot.check_grammar("root ::= ["), lambda: ingot.schema_to_grammar("{")):
            with self.assertRaises(ingot.IngotError):
                wrong()

    def test_the_same_seed_gives_the_same_answer(self):
        first = self.engine.generate(STORY, max_tokens=20)
        again = self.engine.generate(STORY, max_tokens=20, seed=first.seed)
        other = self.engine.generate(STORY, max_tokens=20)
        self.assertEqual(first.tokens, again.tokens)
        self.assertNotEqual(first.seed, other.seed)

    def test_options_may_be_kept(self):
        options = ingot.Options(temperature=0, max_tokens=30, stop=["zzz", "fox"])
        result = self.engine.generate(STORY, options)
        self.assertEqual((result.finish, result.stop), ("stop", "fox"))
        self.assertNotIn("fox", result.text)
        self.assertEqual(self.engine.generate(STORY, options, stop=[]).finish, "length")
        with self.assertRaises(TypeError):
            self.engine.generate(STORY, temprature=0)

    def test_a_schema_is_followed(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
        for given in (schema, json.dumps(schema)):
            self.assertEqual(list(json.loads(self.engine.generate(QUESTION, json_schema=given, seed=1, max_tokens=60).text)), ["n"])
        self.assertIn(self.engine.generate(QUESTION, grammar='root ::= "yes" | "no"').text, ("yes", "no"))

    def test_a_bias_forbids_a_token(self):
        token = self.engine.generate(STORY, temperature=0, max_tokens=1).tokens[0]
        self.assertNotEqual(self.engine.generate(STORY, temperature=0, max_tokens=1, bias={token: -1000}).tokens[0], token)

    def test_a_batch_gives_each_what_it_gets_alone(self):
        prompts = [QUESTION, STORY, "Once", QUESTION]
        alone = [self.engine.generate(prompt, temperature=0, max_tokens=12).tokens for prompt in prompts]
        self.assertEqual([result.tokens for result in self.engine.batch(prompts, temperature=0, max_tokens=12)], alone)
        self.assertEqual(self.engine.batch([]), [])

    def test_a_bad_prompt_spoils_no_batch(self):
        bad = [{"role": "human", "content": "Hello"}]
        first, second, third = self.engine.batch([QUESTION, bad, QUESTION], temperature=0, max_tokens=5)
        self.assertEqual(first.tokens, third.tokens)
        self.assertIsInstance(second, ingot.IngotError)
        self.assertEqual(second.code, ingot.Code.INPUT)
        self.assertIn("want system, user, assistant or tool", str(second))

    def test_leaving_a_stream_ends_it(self):
        for _ in self.engine.stream(STORY, ignore_eos=True):
            break
        pieces = self.engine.stream(STORY, ignore_eos=True)
        next(pieces)
        pieces.close()
        self.assertEqual(self.engine.generate(STORY, max_tokens=1).finish, "length")

    def test_a_request_can_be_cancelled(self):
        request = self.engine.submit(STORY, ignore_eos=True)
        pieces = iter(request)
        next(pieces)
        request.cancel()
        for _ in pieces:
            pass
        self.assertEqual(request.result().finish, "cancelled")
        request.cancel()  # nothing any more

    def test_a_timeout_is_an_error(self):
        with self.assertRaises(ingot.IngotError) as caught:
            self.engine.generate(STORY, ignore_eos=True, timeout=0.001)
        self.assertEqual(caught.exception.code, ingot.Code.TIMEOUT)

    def test_an_embedding_has_length_one(self):
        vector = self.engine.embed("a fox")
        self.assertEqual(len(vector), self.engine.info.n_embedding)
        self.assertAlmostEqual(sum(x * x for x in vector), 1, places=4)

    def test_other_threads_run_meanwhile(self):
        counts = [0]
        done = threading.Event()

        def count():
            while not done.is_set():
                counts[0] += 1
                time.sleep(0)

        thread = threading.Thread(target=count)
        thread.start()
        self.engine.generate(STORY, max_tokens=40, ignore_eos=True)
        done.set()
        thread.join()
        self.assertGreater(counts[0], 40)

    def test_threads_share_an_engine(self):
        alone = self.engine.generate(STORY, temperature=0, max_tokens=15).tokens
        answers = [None] * 5

        def ask(i):
            answers[i] = self.engine.generate(STORY, temperature=0, max_tokens=15).tokens

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(answers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [alone] * len(answers))


class Interrupts(unittest.TestCase):
    def setUp(self):
        self.engine = ingot.Engine(device="cpu", n_threads=1, n_context=1 << 15)  # an answer without an end
        self.addCleanup(self.engine.close)

    def interrupted(self, work):
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            work()
        timer.join()
        self.assertEqual(self.engine.generate(STORY, max_tokens=1).finish, "length")  # nothing is left of it

    def test_ctrl_c_ends_an_answer(self):
        self.interrupted(lambda: self.engine.generate(STORY, ignore_eos=True))

    def test_ctrl_c_ends_a_batch(self):
        self.interrupted(lambda: self.engine.batch([STORY, QUESTION], ignore_eos=True))

    def test_closing_from_another_thread_ends_an_answer(self):
        timer = threading.Timer(0.2, self.engine.close)
        timer.start()
        self.assertEqual(self.engine.generate(STORY, ignore_eos=True).finish, "cancelled")
        timer.join()
        with self.assertRaises(ingot.IngotError):
            self.engine.generate(STORY)


class Engines(unittest.TestCase):
    def test_errors_are_exceptions(self):
        with self.assertRaises(ingot.IngotError) as caught:
            ingot.Engine("/nowhere/model.gguf")
        self.assertEqual(caught.exception.code, ingot.Code.NOT_FOUND)
        self.assertIn("/nowhere/model.gguf", str(caught.exception))
        with self.assertRaises(TypeError):
            ingot.Engine(n_contexts=5)
        with self.assertRaises(ingot.IngotError):
            ingot.Engine(device="abacus")

    def test_a_name_is_looked_for_in_the_cache(self):
        with self.assertRaises(ingot.IngotError) as caught:
            ingot.Engine("nobody/nothing:Q4_K_M")
        self.assertEqual(caught.exception.code, ingot.Code.NOT_FOUND)
        self.assertIn("ingot pull nobody/nothing:Q4_K_M", str(caught.exception))

    def test_memory_is_known_before(self):
        memory = ingot.Engine.estimate(device="cpu", n_sequences=2)
        with ingot.Engine(device="cpu", n_sequences=2) as engine:
            self.assertEqual((memory.weight_bytes, memory.page_bytes), (engine.info.weight_bytes, engine.info.page_bytes))
        self.assertGreater(memory.free_bytes, 0)

    def test_a_closed_engine_says_so(self):
        engine = ingot.Engine(device="cpu")
        request = engine.submit(STORY)
        engine.close()
        engine.close()
        self.assertEqual(request.result().finish, "cancelled")
        with self.assertRaises(ingot.IngotError):
            engine.generate(STORY)

    def test_the_version_has_three_numbers(self):
        self.assertEqual(len(ingot.version().split(".")), 3)


class Eyes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = ingot.Engine("ingot-eyes", device="cpu", n_threads=1)
        cls.path = Path(__file__).parents[3] / "examples" / "shapes.png"

    @classmethod
    def tearDownClass(cls):
        cls.engine.close()

    def ask(self, question, **changes):
        message = [{"role": "user", "content": question}]
        return self.engine.generate(message, temperature=0, max_tokens=40, **changes)

    def test_a_picture_is_a_path_bytes_or_pixels(self):
        self.assertTrue(self.engine.info.takes_pictures)
        told = self.ask("What is in the picture?", pictures=[self.path])
        self.assertIn("a red circle", told.text)
        self.assertEqual((told.n_tiles, told.n_tiles_cached), (5, 0))
        again = self.ask("What is in the picture?", pictures=[self.path.read_bytes()])
        self.assertEqual(again.text, told.text)
        self.assertGreater(again.n_reused, 90)
        picture = ingot.Picture(str(self.path))
        self.assertEqual(picture.size, (320, 240))
        self.assertEqual(self.ask("Where is the star?", pictures=[picture], no_split=True).n_tiles, 1)
        red = ingot.Picture.from_rgb(bytes([220, 30, 30]) * 64 * 64, 64, 64)
        self.assertEqual(self.ask("What colour is the background?", pictures=[red]).text, "red")

    def test_a_picture_stands_where_a_message_has_its_part(self):
        parts = [{"type": "image"}, {"type": "text", "text": "What does it say?"}]
        result = self.engine.generate([{"role": "user", "content": parts}], temperature=0, pictures=[self.path])
        self.assertEqual(result.text, "INGOT")

    def test_what_is_no_picture_is_told(self):
        with self.assertRaisesRegex(ingot.IngotError, "PNG, JPEG and WebP are read"):
            ingot.Picture(b"no picture")
        with self.assertRaises(ingot.IngotError):
            self.ask("x", pictures=["/nowhere.png"])
        with self.assertRaises(ValueError):
            ingot.Picture.from_rgb(b"", 1, 1)
        with ingot.Engine(device="cpu", n_threads=1) as blind:
            self.assertFalse(blind.info.takes_pictures)
            with self.assertRaisesRegex(ingot.IngotError, "no eyes"):
                blind.generate(QUESTION, pictures=[self.path])


if __name__ == "__main__":
    unittest.main()
