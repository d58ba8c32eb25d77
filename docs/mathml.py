"TeX as MathML, with the spaces that latex2mathml leaves out."
import re
from latex2mathml.converter import convert

THIN = '<mspace width="0.17em"/>'
NAME = re.compile(r"<mi>(log|ln|exp|det|dim|sin|cos|tan)</mi>(?=(<m\w+)?)")

def mathml(tex:str, display:str="inline")->str:
    "What a browser draws by itself."
    text = convert(tex, display=display).replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")
    text = text.replace("<mo>&#x23DF;</mo>", '<mo stretchy="true">&#x23DF;</mo>')
    def spaced(m):      # log x, 2 log x; not log(x), (log x)
        before = re.search(r"</m(i|n|sub|sup|subsup|frac|row)>$", text[:m.start()])
        return THIN * bool(before) + m[0] + THIN * (m[2] not in ("<mo", "<mspace", None))
    return NAME.sub(spaced, text)
