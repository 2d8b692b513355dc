# SPDX-License-Identifier: Apache-2.0
"""Writes rendered.json: conversations as Jinja renders them with the templates that models come with.

python make_rendered.py MATERIAL JINJA > rendered.json
MATERIAL holds tokenizers/ and conformance/chat; JINJA holds llama2.jinja, llama3.1.jinja, llama4.jinja and qwen.jinja,
the chat templates of Llama-2-7b-chat-hf, Llama-3.1-8B-Instruct, Llama-4-Scout-17B-16E-Instruct and Qwen2-7B-Instruct.
"""
import json
import sys

from jinja2.sandbox import ImmutableSandboxedEnvironment
import jinja2
def env():
    e=ImmutableSandboxedEnvironment(trim_blocks=True,lstrip_blocks=True,extensions=['jinja2.ext.loopcontrols'])
    e.filters['tojson']=lambda x,ensure_ascii=False,indent=None,separators=None,sort_keys=False: json.dumps(x,ensure_ascii=ensure_ascii,indent=indent,separators=separators,sort_keys=sort_keys)
    def r(m): raise jinja2.exceptions.TemplateError(m)
    e.globals['raise_exception']=r
    return e
M = sys.argv[1] + '/'
T={}
for n in ('qwen2.5','qwen3','mistral-7b-instruct-v0.3'):
    c=json.load(open(M+f'tokenizers/{n}/tokenizer_config.json'))
    T[{'mistral-7b-instruct-v0.3':'mistral-v3'}.get(n,n)]=(c['chat_template'],'<s>' if 'mistral' in n else '','</s>' if 'mistral' in n else '<|im_end|>')
d=json.load(open(M+'conformance/chat/chat_llama_cpp.json'))
for c in d['cases']:
    n={'teknium/OpenHermes-2.5-Mistral-7B':'chatml','Llama-3':'llama3',"mistralai/Mistral-7B-Instruct-v0.2 (mistralai 'v1' template with a system prompt)":'mistral-v1',"Mistral-Nemo-Instruct-2407 (mistralai 'v3-tekken' template; modified to have system prompt at start)":'mistral-v3-tekken',"mistralai/Mistral-Large-Instruct-2411 (mistralai 'v7' template)":'mistral-v7'}.get(c['name'])
    if n: T[n]=(c['template_str'],'<B>','</S>')
for name, bos, eos in (('llama2', '<s>', '</s>'), ('qwen', '', ''), ('llama3.1', '<|begin_of_text|>', '<|eot_id|>'),
                       ('llama4', '<|begin_of_text|>', '<|eot|>')):
    T[name] = (open(f'{sys.argv[2]}/{name}.jinja').read(), bos, eos)
S=lambda t:{'role':'system','content':t}
U=lambda t:{'role':'user','content':t}
A=lambda t,**k:dict(role='assistant',content=t,**k)
calls=[{'type':'function','function':{'name':'get','arguments':{'z':1,'a':[1.5,True,None,'é"\n']}}}]
tools=[{'type':'function','function':{'name':'get','description':'d','parameters':{'type':'object','properties':{'z':{'type':'integer'}}}}}]
convs=[
 dict(messages=[U('Hi')]),
 dict(messages=[S('Sys'),U('Hi')]),
 dict(messages=[S('  Sys \n'),U('  Hi \u00a0'),A('  there  '),U(' x\n')]),
 dict(messages=[U('Hi'),A('there'),U('more'),A(' last\n')]),
 dict(messages=[S('Sys'),U('Hi'),A('there'),U('more'),A('last')]),
 dict(messages=[S(''),U('Hi'),A('there')]),
 dict(messages=[U('Hi'),S('later'),A('x')]),
 dict(messages=[U('Hi'),A('x'),A('y'),U('z')]),
 dict(messages=[A('x'),U('z'),A('\n\nw')]),
 dict(messages=[U('q'),A('<think>\nabc\n</think>\n\nans')]),
 dict(messages=[U('q'),A('<think>\nabc\n</think>\n\nans'),U('r'),A('ans2')]),
 dict(messages=[U('q'),A('ans',reasoning_content='why\n')]),
 dict(messages=[U('q'),A('',tool_calls=calls),{'role':'tool','content':'{"r": 1}'},{'role':'tool','content':'two'},A('done')],tools=tools),
 dict(messages=[S('Sys'),U('q'),A('let me',tool_calls=calls+calls),{'role':'tool','content':'1'},A('done'),U('and'),A('bye')],tools=tools),
 dict(messages=[U('Hi'),A('')]),
]
out=[]
for name in sorted(T):
    if not T[name]: continue
    t,b,e=T[name]
    tm=env().from_string(t)
    for i,c in enumerate(convs):
        for gen in (False,True):
            if gen and c['messages'][-1]['role']!='user': continue
            try: r=tm.render(messages=c['messages'],bos_token=b,eos_token=e,add_generation_prompt=gen,**({'tools':c['tools']} if 'tools' in c else {}))
            except Exception as x: r=None
            out.append(dict(template=name,bos=b,eos=e,conversation=c,generation=gen,text=r))
    
convs = []
rows = []
for c in out:
    if c['conversation'] not in convs:
        convs.append(c['conversation'])
    rows.append([c['template'], convs.index(c['conversation']), c['generation'], c['bos'], c['eos'], c['text']])
dump = lambda values: ',\n'.join(json.dumps(v, ensure_ascii=False) for v in values)
print('{"conversations": [\n' + dump(convs) + '\n],\n"columns": ["template", "conversation", "with generation prompt", '
      '"bos", "eos", "text; null: refused"],\n"cases": [\n' + dump(rows) + '\n]}')
