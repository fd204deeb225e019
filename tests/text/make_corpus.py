"""Write corpus.txt: text that tokenizers disagree about, one JSON string a line. `python tests/text/make_corpus.py`"""

import json
import random
import sys
import unicodedata
from pathlib import Path

SENTENCES = """
The quick brown fox doesn't jump; it's 3,141.59 miles away, isn't it?
Der schnelle braune Fuchs springt über den faulen Hund – für 12,50 €.
Où est le café ? L'été, j'aime l'œuvre d'Éric à l'hôtel.
El niño pidió «¿cuánto cuesta?» y ¡nadie contestó!
A garça não pôde voar até São Tomé às 7h30.
Perché l'università è così lontana dalla città?
Żółta jaźń gęsi: zażółć gęślą jaźń.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Árvíztűrő tükörfúrógép, 1848. március 15.
Șapte fântâni și țara întreagă.
Yağmurlu bir İstanbul günü, ılık çay içtik.
Съешь ещё этих мягких французских булок, да выпей чаю № 5.
Їжак з'їв ґрунт, щастя є!
Жълтата дюля беше щастлива.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, ώ!
Ընկերներ, բարև ձեզ։
გამარჯობა, როგორ ხარ?
שלום עולם, מה שלומך היום? שָׁלוֹם
مرحبا بالعالم، كيف حالك؟ اَلْعَرَبِيَّةُ ١٢٣٤
سلام دنیا، می‌خواهم کتاب بخوانم ۵۶۷
ہیلو دنیا، آپ کیسے ہیں؟
नमस्ते दुनिया, आप कैसे हैं? क्षत्रिय ज्ञान १२३
হ্যালো বিশ্ব, আপনি কেমন আছেন? ৪৫৬
வணக்கம் உலகம், நீங்கள் எப்படி இருக்கிறீர்கள்?
హలో ప్రపంచం, మీరు ఎలా ఉన్నారు?
ಹಲೋ ಪ್ರಪಂಚ, ಹೇಗಿದ್ದೀರಾ?
ഹലോ ലോകം, സുഖമാണോ?
ਸਤ ਸ੍ਰੀ ਅਕਾਲ ਦੁਨੀਆ
નમસ્તે દુનિયા, કેમ છો?
ආයුබෝවන් ලෝකය
สวัสดีชาวโลก วันนี้อากาศดีมาก ๑๒๓
ສະບາຍດີຊາວໂລກ
မင်္ဂလာပါ ကမ္ဘာလောက
សួស្តី​ពិភពលោក
བཀྲ་ཤིས་བདེ་ལེགས།
안녕하세요 세계! 오늘 날씨가 정말 좋네요. 3시 45분
각하 가나다라 ㄱㄴㄷ ㅏㅑㅓㅕ 한글 자모
こんにちは世界。今日はとても良い天気ですね！カタカナｶﾀｶﾅ
吾輩は猫である。名前はまだ無い。２０２６年１１月
你好，世界！今天天气很好。价格是￥１２３.４５元。
歡迎來到臺灣，這裡的夜市很有名！
Xin chào thế giới, hôm nay trời đẹp quá phải không?
Selamat pagi dunia, apa kabar? Ke mana-mana 2x.
Habari dunia, ni siku nzuri sana.
Sawubona mhlaba, unjani namhlanje?
Ẹ káàárọ̀ o, báwo ni? Ọjọ́ dára.
ሰላም ልዑል፣ እንዴት ነህ?
ᎣᏏᏲ ᎡᎶᎯ
ᐊᐃᓐᖓᐃ ᓄᓇᕐᔪᐊᖅ
Halló heimur, þetta er æðislegt.
Tere maailm, õues sööb jäääär.
Hyvää päivää, äiti löi rytmiä.
Sveika pasaule, ļoti žēl šķīvja.
Dia dhuit, a dhomhain! Tá fáilte romhat.
Helo byd, sut wyt ti? Llanfairpwllgwyngyll.
Kaixo mundua, zer moduz?
Сайн байна уу, дэлхий? ᠮᠣᠩᠭᠣᠯ
𝕳𝖊𝖑𝖑𝖔 𝓦𝓸𝓻𝓵𝓭 𝟙𝟚𝟛 ｆｕｌｌｗｉｄｔｈ ⅷ ½ ² ₃ ①
𐍈𐌰𐌹𐍂 𐤀𐤋𐤐 𓀀𓂀 𒀀𒁀 𠜎𠜱𠝹 𝄞 🀄
""".strip().split("\n")
CODE = r"""
def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n-2)
        raise ValueError(f"got {value!r}, wanted {want:>10.3f}")
for i in range(0, 100, 3): print(i, end='\t')
@dataclass(frozen=True, slots=True)
#include <vector>
int main(int argc, char **argv) { return argc > 1 ? 0 : -1; }
template <typename T> constexpr auto max(T a, T b) noexcept -> T { return a<b?b:a; }
std::unordered_map<std::string, std::vector<uint8_t>> m{{"a", {0xFF, 0x1b}}};
	if (ptr != NULL && ptr->next) free(ptr->next);
fn main() -> Result<(), Box<dyn std::error::Error>> { println!("{:?}", x?); Ok(()) }
let v: Vec<_> = (0..10).map(|x| x * 2).filter(|&x| x % 3 == 0).collect();
const f = async (x) => { await fetch(`https://example.org/${x}?q=1&r=2#top`); };
export default function App({ children }: Props): JSX.Element { return <div className="a-b">{children}</div>; }
if (a === b || c !== d && !e) { a ??= b?.c ?? "d"; }
SELECT id, COUNT(*) AS n FROM t WHERE x >= 10 AND y LIKE '%a_b%' GROUP BY id HAVING n > 1;
<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"></head><body>&nbsp;&amp;</body></html>
<table><tr><td>1</td></tr></table><h1>x</h1><br/></s><s>
{"name": "x", "list": [1, 2.5, -3e-7, null, true], "nested": {"k": "\u00e9\n"}}
- key: value
  - "nested: yes"   # comment
#!/usr/bin/env bash
for f in *.txt; do echo "${f%.txt}" >> out.log 2>&1; done | sort -u
package main; import "fmt"; func main() { defer fmt.Println("x"); ch := make(chan int, 1); ch <- 1 }
public static void main(String[] args) throws IOException { System.out.println("a" + 'b'); }
main = do { xs <- getLine; putStrLn $ reverse xs >>= \x -> [x,x] }
(defun square (x) (* x x)) ; lisp
\begin{equation} \frac{\partial u}{\partial t} = \alpha \nabla^2 u \end{equation}
$x_1^2 + \sqrt{y}$ and \( a \ne b \)
| a | b |
|---|:-:|
```python
**bold** _it_ ~~no~~ [link](http://a.b/c_(d)) ![](x.png)
diff --git a/x b/x
@@ -1,3 +1,4 @@
+added	line
-removed line
0x7fffdeadbeef 1_000_000 0b1010 1e-10 3.14f 100L 1/2 50% $5.00 #123 @user a@b.co
v1.2.3-rc.4+build.5 192.168.0.1:8080 2026-11-29T16:06:00Z 12:34:56.789
C:\Users\x\file.txt /usr/local/bin ../a/./b ~/.cache
a+b-c*d/e%f^g&h|i~j!k@l#m$n?o:p;q,r.s<t>u=v"w'x`y\z
'''docstring''' \"\"\"quoted\"\"\" ''''' ''s 'S 'T 'RE 'Ll 'vE 'tis 'twas o'clock rock'n'roll I'd've y'all'd
HTTPServer XMLHttpRequest camelCaseWord snake_case_word SCREAMING_CASE kebab-case-word iPhone eBay McDonald
!!! ??? ... ,,, ;;; ::: ((( ))) [[[ ]]] {{{ }}} <<< >>> --- === +++ *** /// \\\ ||| &&& %%% ### @@@ ~~~ ``` ^^^
""".strip("\n").split("\n")
EMOJI = """
😀 😂🤣 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 1️⃣ ❤️‍🔥 🧑🏿‍🚀 ☺︎ ☺️ 🫠 🫱🏻‍🫲🏿 👨‍💻 🐻‍❄️ 🪿 ⌚️ ™️ © ↔️ 🤷‍♀️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 👁️‍🗨️ 🕵🏾‍♂️ 🧌
""".strip().split()
NAMES = """
<|im_start|> <|im_end|> <|endoftext|> <|eot_id|> <|begin_of_text|> <s> </s> <unk> <pad> <bos> <eos> <start_of_turn>
<end_of_turn> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|file_sep|> <|repo_name|> <repo_name> <reponame> <file_sep>
<filename> <gh_stars> <issue_start> <jupyter_code> <empty_output> <unused0> <unused99> [multimodal] <0x0A> <0xE2>
<tool_call> </tool_call> <table> </td> <h1> <|im_start <|im_end| |im_end|> <|im_end|>> <<|im_end|> <|object_ref_start|>
<mask> [INST]
""".strip().split()
SPACES = [
    " ",
    "  ",
    "   ",
    "        ",
    "\t",
    "\t\t",
    " \t",
    "\n",
    "\n\n",
    "\n\n\n\n",
    "\r\n",
    "\r",
    " \n ",
    "\n \n",
    "\v",
]
SPACES += [
    "\f",
    "\u00a0",
    "\u1680",
    "\u2003",
    "\u2009",
    "\u2028",
    "\u2029",
    "\u202f",
    "\u205f",
    "\u3000",
    "\u0085",
    "\u200b",
]
SPACES += [" " * 31, " " * 70, "\n" * 33, "\u2581", "\u2581\u2581", "\ufeff", "\u00ad", "\u2060"]
CONTROLS = [
    chr(i) for i in (0, 1, 7, 8, 0x0E, 0x1B, 0x1C, 0x1F, 0x7F, 0x80, 0x9F, 0x200D, 0x200E, 0x202E, 0xFFF9, 0xFFFD)
]
MARKS = [chr(i) for i in (0x300, 0x301, 0x308, 0x323, 0x331, 0x489, 0x5B8, 0x64E, 0x93F, 0x94D, 0x20D7, 0x3099, 0xFE0F)]


def corpus() -> list[str]:
    rng = random.Random(20261129)
    lines = [*SENTENCES, *CODE, *EMOJI, *NAMES, *(f"a{space}b{space}" for space in SPACES), *SPACES, *CONTROLS, *MARKS]
    words = [word for line in SENTENCES + CODE for word in line.split()]
    pools = (words, words, EMOJI, NAMES, SPACES, CONTROLS, MARKS, list("0123456789"), ["'s", "'LL", "'d", "’s", "'"])

    def pick(count: int, glue: tuple[str, ...] = ("", " ")) -> str:
        return "".join(rng.choice(rng.choice(pools)) + rng.choice(glue) for _ in range(count))

    lines += [" ".join(rng.sample(words, 8)) for _ in range(250)]
    lines += [pick(rng.randint(2, 12)) for _ in range(500)]
    lines += [pick(rng.randint(2, 12), ("",)) for _ in range(250)]
    lines += [" " * rng.randint(0, 17) + rng.choice(CODE) + rng.choice(SPACES) + rng.choice(CODE) for _ in range(250)]
    lines += [rng.choice(SENTENCES).upper() + rng.choice(SPACES) + rng.choice(SENTENCES).lower() for _ in range(100)]
    lines += [unicodedata.normalize("NFD", line) for line in SENTENCES]
    lines += [
        "".join(rng.choice("0123456789") for _ in range(n)) + rng.choice(["", ".", "x", " "]) for n in range(1, 40)
    ]
    lines += ["".join(rng.choice(" \t\n\r.!'a1") for _ in range(rng.randint(3, 25))) for _ in range(150)]
    lines += [rng.choice(NAMES) + rng.choice(NAMES) + rng.choice(words) + rng.choice(NAMES) for _ in range(100)]
    # Characters of every block, so that every category of the tables is met. Only what has long been assigned.
    old = [chr(i) for i in range(0x2FA20) if unicodedata.ucd_3_2_0.category(chr(i)) not in ("Cn", "Cs", "Co")]
    for _ in range(350):
        some = rng.sample(old, 6)
        lines.append(f"a{some[0]}b {some[1]}{some[2]} 1{some[3]}2 {some[4]}x'{some[5]}")
    return [line for line in dict.fromkeys(lines) if line]


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    path = Path(__file__).with_name("corpus.txt")
    texts = corpus()
    path.write_text("".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts), encoding="utf-8")
    print(f"{len(texts)} lines, {path.stat().st_size} bytes")
